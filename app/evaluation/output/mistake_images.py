"""Draw right, wrong and missed objects over an image, as SVG around a small JPEG."""

from collections.abc import Sequence

import cv2
import pybase64
from markupsafe import Markup

from app.evaluation.answers import PredictedObject
from app.evaluation.dataset import LabelledObject, Ring
from app.evaluation.masks import decode_mask
from app.evaluation.report import Mistake
from tasks.inference.error import InferenceError
from tasks.vision.contours import contours_of_mask
from tasks.vision.image import decode_image

__all__ = ("svg_image",)

_SIDE = 480
_QUALITY = 78
_MAX_PIXELS = 200_000_000
_LETTERS = 24
"""Width of an image divided by the height of its labels."""
_LETTER_WIDTH = 0.65
"""Maximum width of a letter, as a share of its height."""


def svg_image(mistake: Mistake) -> Markup | None:
    """Render the image of a mistake with its objects; None if the image cannot be shown."""
    item, predictions = mistake.result.item, mistake.result.predictions
    if item.width * item.height > _MAX_PIXELS:
        return None
    try:
        pixels = decode_image(item.image.read_bytes()).pixels
    except (OSError, InferenceError):
        return None
    height, width = pixels.shape[:2]
    shrink = min(1.0, _SIDE / max(width, height))
    if shrink < 1:
        size = max(1, round(width * shrink)), max(1, round(height * shrink))
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    quality = [cv2.IMWRITE_JPEG_QUALITY, _QUALITY]
    encoded = cv2.imencode(".jpg", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), quality)[1]
    data = pybase64.b64encode(encoded.tobytes()).decode()
    shapes = [
        *(
            _shape("missed", item.objects[index].label, _truth_rings(item.objects[index]), width, height)
            for index in mistake.missed
        ),
        *(
            _shape(
                kind,
                f"{predictions[index].label} {predictions[index].score:.2f}",
                _rings(predictions[index]),
                width,
                height,
            )
            for kind, indexes in (("right", mistake.right), ("wrong", mistake.wrong))
            for index in indexes
        ),
    ]
    return Markup(
        '<svg class="image" viewBox="0 0 {} {}" role="img" aria-label="{}">'
        '<image href="data:image/jpeg;base64,{}" width="{}" height="{}"/>{}</svg>'
    ).format(width, height, mistake.why, data, width, height, Markup("").join(shapes))


def _shape(kind: str, text: str, rings: Sequence[Ring], width: int, height: int) -> Markup:
    rings = [ring for ring in rings if ring]
    if not rings:
        return Markup("")
    path = "".join("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in ring) + "Z" for ring in rings)
    letter = width / _LETTERS
    left, y = _label_position(kind, rings[0], letter)
    x = max(0.0, min(left, width - _LETTER_WIDTH * letter * len(text)))
    y = min(max(letter, y), height - letter / 4)
    return Markup(
        '<g class="{}"><path class="halo" d="{}"/><path d="{}"/>'
        '<text x="{:.1f}" y="{:.1f}" style="font-size: {:.1f}px">{}</text></g>'
    ).format(kind, path, path, x, y, letter, text)


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
    return truth.rings or _outline(truth.box, truth.corners)


def _rings(prediction: PredictedObject) -> Sequence[Ring]:
    return prediction.rings or _outline(prediction.box, prediction.corners)


def _outline(box: tuple[float, float, float, float] | None, corners: Ring | None) -> Sequence[Ring]:
    if corners is not None:
        return (corners,)
    if box is None:
        return ()
    left, top, right, bottom = box
    return (((left, top), (right, top), (right, bottom), (left, bottom)),)
