"""Settings of models with these layouts."""

from typing import Literal

from msgspec import Struct


class CtcSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the output of a text recogniser is read.

    Attributes:
        time_axis: the axis of the steps; 0 in [steps, 1, characters], of a graph that takes one image at a time.
        blank: whether the blank precedes the labels or follows them.
    """

    time_axis: Literal[0, 1, 2] = 1
    blank: Literal["first", "last"] = "first"


class DetectionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the outputs of the layout `detections` are read, where their names do not show it.

    Attributes:
        boxes: the four numbers of a box: corners, the left top corner with width and height, or the centre with them.
        unit: whether these are pixels of the input, or fractions of its sides.
        scores: for the scores of all classes of a box, the function that the server applies to them.
        background: the number of the class that means no object, -1 for the last one, or "none".
        rows: the order within rows of 6 numbers, or of 7, which begin with the number of the image.
    """

    boxes: Literal["xyxy", "yxyx", "xywh", "cxcywh"] | None = None
    unit: Literal["pixel", "fraction"] | None = None
    scores: Literal["probabilities", "softmax", "sigmoid"] | None = None
    background: int | Literal["none"] | None = None
    rows: Literal["box-score-class", "box-class-score", "class-score-box"] | None = None
