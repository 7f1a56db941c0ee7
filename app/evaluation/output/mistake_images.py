"""Place right, wrong and missed objects over a small JPEG."""

from collections.abc import Sequence
from typing import Any

import pybase64

from app.evaluation.dataset import LabelledObject, Ring, outline
from app.evaluation.masks import decode_mask
from app.evaluation.report import Mistake
from tasks.inference.error import InferenceError
from tasks.vision.contours import contours_of_mask
from tasks.vision.image import decode_image, small_jpeg

_SIDE = 480
_QUALITY = 78
_MAX_PIXELS = 200_000_000
_LETTERS = 24
"""Width of an image divided by the height of its labels."""
_LETTER_WIDTH = 0.65
"""Maximum width of a letter, as a share of its height."""


def draw_mistake(mistake: Mistake) -> dict[str, Any] | None:
    """Return a small JPEG in base 64, the size of the image in pixels, and the shapes over it for the template.

    It is None if the image cannot be shown.
    """
    item, predictions = mistake.result.item, mistake.result.predictions
    if item.width * item.height > _MAX_PIXELS:
        return None
    try:
        pixels = decode_image(item.image.read_bytes()).pixels
    except (OSError, InferenceError):
        return None
    height, width = pixels.shape[:2]
    outlines = [("missed", item.objects[index].label, _truth_rings(item.objects[index])) for index in mistake.missed]
    for kind, indexes in (("right", mistake.right), ("wrong", mistake.wrong)):
        found = [predictions[index] for index in indexes]
        outlines += [
            (kind, f"{one.label} {one.score:.2f}", one.rings or outline(one.box, one.corners)) for one in found
        ]
    shapes = [_shape(kind, text, [ring for ring in rings if ring], width, height) for kind, text, rings in outlines]
    jpeg = pybase64.b64encode(small_jpeg(pixels, _SIDE, _QUALITY)).decode()
    return {"jpeg": jpeg, "width": width, "height": height, "shapes": [shape for shape in shapes if shape]}


def _shape(kind: str, text: str, rings: Sequence[Ring], width: int, height: int) -> dict[str, Any] | None:
    if not rings:
        return None
    path = "".join("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in ring) + "Z" for ring in rings)
    letter = width / _LETTERS
    left, y = _label_position(kind, rings[0], letter)
    x = max(0.0, min(left, width - _LETTER_WIDTH * letter * len(text)))
    y = min(max(letter, y), height - letter / 4)
    return {"kind": kind, "path": path, "x": x, "y": y, "letter": letter, "text": text}


def _label_position(kind: str, ring: Ring, letter: float) -> tuple[float, float]:
    if kind == "missed":
        # Place it below, because a prediction of the same object has its label above.
        left, bottom = max(ring, key=lambda point: (point[1], -point[0]))
        return left, bottom + 1.25 * letter
    left, top = min(ring, key=lambda point: (point[1], point[0]))
    return left, top - letter / 4


def _truth_rings(truth: LabelledObject) -> Sequence[Ring]:
    if truth.mask is not None:
        return [tuple(map(tuple, contour.tolist())) for contour in contours_of_mask(decode_mask(truth.mask))]
    return truth.rings or outline(truth.box, truth.corners)
