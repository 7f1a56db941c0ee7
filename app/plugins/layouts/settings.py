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
