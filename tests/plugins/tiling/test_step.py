"""Large images are cut into tiles, and the answer is that for the whole image."""

import math
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import cv2
import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from app.core.engine.cancellation import CancellationToken, cancellation_scope
from app.core.engine.scheduling.batching import BatchingRunner
from app.plugins.tiling.merging import MAX_MERGED
from app.plugins.tiling.pixel_merging import PixelMerger
from app.plugins.tiling.tiles import tiles_of
from tasks.image_segmentation import Segments
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.inference.response import InferenceResult
from tasks.object_detection import Detections
from tasks.vision.contours import contours_of_mask, mask_of_contours
from tasks.vision.image import Image, ScoredTile
from tests.plugins.tiling.spots import SIDE, answer, canvas, detect, plain, tiled
from tests.support.data.requests import file_input, request
from tests.support.rejection import rejects

SPOTS = [(20, 30, 45, 60), (190, 100, 215, 130), (330, 160, 350, 215), (600, 440, 690, 490), (120, 250, 420, 380)]
"""Boxes: two inside a tile, two over the borders of tiles, and one larger than a tile."""


def scene() -> NDArray[np.uint8]:
    image = canvas()
    for left, top, right, bottom in SPOTS:
        image[top:bottom, left:right] = 255
    return image


def prediction(result: InferenceResult) -> Any:
    return result.outputs[0].predictions[0]


def counting(calls: list[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return the detector, which appends the number of images of each call."""

    def model(inputs: Sequence[Any]) -> Sequence[Any]:
        calls.append(len(inputs))
        return detect(inputs)

    return model


def boxes(result: InferenceResult) -> list[tuple[int, ...]]:
    return sorted(tuple(map(int, box)) for box in prediction(result).boxes.round())


@pytest.mark.parametrize("full", [True, False])
def test_every_object_is_found_once_in_pixels_of_the_image(full: bool) -> None:
    result = answer(tiled("box", full=full), scene(), tile=SIDE, overlap=0.5)
    assert boxes(result) == sorted(SPOTS)
    assert result.outputs[0].parameters == {"tiles": 6 * 4}
    # The limits of the request apply to the whole image: scores of parts of the large spot are lower.
    for limits in ({"top_k": 1}, {"score_threshold": 0.85}):
        assert boxes(answer(tiled("box"), scene(), tile=SIDE, **limits)) == [SPOTS[4]]
    # Suppression alone keeps the parts of the large spot.
    merging = (tiled("box", merge=merge, full=False) for merge in ("nms", "none"))
    nms, none = (boxes(answer(servable, scene(), tile=SIDE, overlap=0.5)) for servable in merging)
    assert len(SPOTS) < len(nms) < len(none)
    # Keypoints are the corners. Those of a joined object are of its best part.
    whole = prediction(result)
    for box, points in zip(whole.boxes, whole.keypoints.reshape(-1, 4), strict=True):
        assert (points == box).all() or (not full and box[2] - box[0] > SIDE)


def test_setting_of_the_model_cuts_every_image_and_a_request_may_turn_it_off() -> None:
    calls: list[int] = []
    servable = tiled("box", counting(calls), chunk=5, size=(SIDE, 250), overlap=0.5)
    assert boxes(answer(servable, scene())) == sorted(SPOTS)
    assert calls == [5, 5, 5, 5, 1]
    calls.clear()
    assert answer(servable, scene(), tile=0).outputs[0].parameters == {}
    assert answer(servable, scene(), tile=False).outputs[0].parameters == {}
    assert calls == [1, 1]
    assert answer(servable, scene(), tile=True, overlap=0).outputs[0].parameters == {"tiles": 3 * 3}


@pytest.mark.parametrize("kind", ["box", "oriented", "contour"])
@pytest.mark.parametrize("parameters", [{}, {"tile": 700}, {"tile": [500, 700]}])
def test_image_that_fits_into_a_tile_is_answered_as_without_tiles(kind: str, parameters: dict[str, object]) -> None:
    expected, found = answer(plain(kind), scene()), answer(tiled(kind), scene(), **parameters)
    assert found.outputs[0].parameters == expected.outputs[0].parameters == {}
    assert msgspec.json.encode(prediction(found).records()) == msgspec.json.encode(prediction(expected).records())


def test_oriented_objects_over_borders_are_whole() -> None:
    image = canvas()
    shape = ((350.0, 250.0), (260.0, 40.0), 30.0)
    cv2.fillPoly(image, [cv2.boxPoints(shape).round().astype(np.int32)], (255, 255, 255))
    result = answer(tiled("oriented", full=False), image, tile=SIDE, overlap=0.6)
    (box,) = prediction(result).boxes
    sides = sorted(box[2:4].tolist())
    assert box[:2] == pytest.approx([350, 250], abs=1)
    assert sides == pytest.approx([40, 260], abs=2)
    assert math.cos(2 * (box[4] - math.radians(30))) == pytest.approx(1 if box[2] > box[3] else -1, abs=0.01)
    (record,) = prediction(result).records()
    assert (record.cx, record.cy) == pytest.approx((0.5, 0.5), abs=0.01)


def test_contours_over_borders_are_one_and_keep_their_hole() -> None:
    image = canvas()
    cv2.circle(image, (350, 250), 120, (255, 255, 255), 30)
    result = answer(tiled("contour", full=False), image, tile=SIDE, overlap=0.5)
    (contours,) = prediction(result).contours
    assert np.array_equal(mask_of_contours(contours, 700, 500), image[:, :, 0] // 255)


def classes(inputs: Sequence[Any]) -> Sequence[Segments]:
    """Return two classes: bright pixels and, with a score that grows with its share, all others."""
    found: list[Segments] = []
    for item in inputs:
        bright = (item.image.pixels[:, :, 0] > 127).astype(np.uint8)
        masks = {"bright": bright, "dark": 1 - bright}
        masks = {label: mask for label, mask in masks.items() if mask.mean() >= item.floor}
        scores = np.array([mask.mean() for mask in masks.values()], np.float32)
        contours = [contours_of_mask(mask) for mask in masks.values()]
        found.append(Segments(labels=list(masks), scores=scores, contours=contours))
    return found


def test_classes_of_pixels_are_those_of_their_tiles() -> None:
    image = scene()
    result = answer(tiled("contour", classes, pixels=0.0), image, tile=SIDE, score_threshold=0.0)
    segments = prediction(result)
    bright = image[:, :, 0] // 255
    for label, contours in zip(segments.labels, segments.contours, strict=True):
        expected = bright if label == "bright" else 1 - bright
        assert np.array_equal(mask_of_contours(contours, 700, 500), expected)
    # A class is left out by its score in the image, not in a tile.
    few = answer(tiled("contour", classes, pixels=0.0), image, tile=SIDE, score_threshold=0.6)
    assert prediction(few).labels == ["dark"]
    assert np.array_equal(mask_of_contours(prediction(few).contours[0], 700, 500), 1 - bright)


def test_scores_of_pixels_are_averaged_where_tiles_overlap() -> None:
    """Tiles begin at columns 0 and 100. Both see columns 100 to 199, where the right one loses to a quarter of 4."""

    def model(inputs: Sequence[Any]) -> Sequence[Segments]:
        def planes(item: Any) -> NDArray[np.float32]:
            a = 0.4 if item.image.pixels[0, -1, 0] else 0.9
            return np.array([np.full((SIDE, SIDE), score) for score in (a, 1 - a)], np.float32)

        assert all(isinstance(item.image, ScoredTile) for item in inputs)
        scores = np.ones(2, np.float32)
        fields: dict[str, Any] = {"labels": ["a", "b"], "scores": scores, "contours": [(), ()]}
        return [Segments(**fields, pixel_scores=planes(item)) for item in inputs]

    image = canvas(300, SIDE)
    image[:, 200:] = 255
    segments = prediction(answer(tiled("contour", model, pixels=0.0), image, tile=SIDE, overlap=0.5))
    masks = dict(zip(segments.labels, (mask_of_contours(c, 300, SIDE) for c in segments.contours), strict=True))
    # a: 0.9 l + 0.4 r, b: 0.1 l + 0.6 r with the weights l = 100 - i and r = i + 1 of column i.
    assert np.array_equal(np.flatnonzero(masks["a"].max(axis=0)), np.arange(180))
    assert (masks["a"] + masks["b"] == 1).all()
    # The right tile has 0.4 of a and 0.6 of b; its pixels belong to neither above 0.6.
    few = prediction(answer(tiled("contour", model, pixels=0.65), image, tile=SIDE, overlap=0.5))
    assert few.labels == ["a"]


def test_memory_of_many_classes_is_bounded_by_a_row_of_tiles() -> None:
    image, count = Image(np.zeros((2000, 200, 3), np.uint8)), 40
    tiles = tiles_of(200, 2000, (100, 200), 0.2)
    numbers = np.arange(100 * 200).reshape(100, 200) % count
    planes = np.array([numbers == number for number in range(count)], np.float32)
    labels = [str(number) for number in range(count)]
    segments = Segments(labels=labels, scores=np.ones(count, np.float32), contours=[()] * count, pixel_scores=planes)
    tracemalloc.start()
    merger = PixelMerger(image, tiles, 0.0)
    for tile in tiles:
        merger.add(tile, segments)
    assert tracemalloc.get_traced_memory()[1] < 2000 * 200 * count * 4 / 5
    tracemalloc.stop()


def test_each_input_has_its_own_tiles_and_images_that_fit_share_one_call() -> None:
    calls: list[int] = []
    small = canvas(SIDE, SIDE)
    small[50:80, 50:90] = 255
    result = answer(tiled("box", counting(calls), chunk=64), small, scene(), small, tile=SIDE)
    assert calls == [2, 16]
    assert [output.parameters for output in result.outputs] == [{}, {"tiles": 15}, {}]
    assert [len(output.predictions[0].labels) for output in result.outputs] == [1, 5, 1]  # type: ignore[attr-defined]
    assert len(result.samples) == 3


def test_too_many_tiles_are_rejected_with_the_smallest_tile_that_fits() -> None:
    with pytest.raises(InferenceError) as rejected:
        answer(tiled("box", max_tiles=20), scene(), scene(), tile=SIDE)
    assert rejected.value.kind is ErrorKind.TOO_LARGE
    assert rejected.value.path == "inputs[1].parameters.tile"
    assert "for this input; the smallest tile that fits is " in rejected.value.message
    fitting = int(rejected.value.message.rpartition(" ")[2])
    assert len(answer(tiled("box", max_tiles=20), scene(), scene(), tile=fitting + 100).outputs) == 2
    with rejects(path="inputs[0]", kind=ErrorKind.TOO_LARGE):
        answer(tiled("box", max_tiles=3, size=SIDE), scene())


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        ("box", {"tile": 3}, "Expected 16..16384 pixels, [height, width], or 0 for no tiles, got 3"),
        ("box", {"tile": -1}, "Expected 16..16384 pixels, [height, width], or 0 for no tiles, got -1"),
        ("box", {"tile": [640, 0]}, "Expected 16..16384 pixels, [height, width], or 0 for no tiles, got [640, 0]"),
        ("box", {"tile": "640"}, "Expected `bool | int | array | null`, got `str`"),
        ("box", {"tile": 640, "overlap": 0.9}, "Expected `float` <= 0.8"),
        ("class", {"tile": 640}, "Expected none: a model of IMAGE_CLASSIFICATION is not tiled"),
    ],
)
def test_invalid_parameters_are_rejected(kind: str, parameters: dict[str, object], message: str) -> None:
    with pytest.raises(InferenceError) as rejected:
        answer(tiled(kind), scene(), **parameters)
    assert rejected.value.kind is ErrorKind.INVALID_REQUEST
    assert rejected.value.message == message
    assert rejected.value.path.startswith("inputs[0].parameters.")


def test_of_too_many_objects_the_best_are_merged() -> None:
    random = np.random.default_rng(5)

    def model(inputs: Sequence[Any]) -> Sequence[Detections]:
        corners = random.uniform(50, 140, (1500, 2)).astype(np.float32)
        scores = random.uniform(0.5, 0.9, 1500).astype(np.float32)
        boxes = np.concatenate([corners, corners + 1], axis=1)
        return [Detections(labels=["dot"] * 1500, scores=scores, boxes=boxes) for _ in inputs]

    found = prediction(answer(tiled("box", model, merge="none"), scene(), tile=SIDE))
    assert len(found.labels) == MAX_MERGED
    # 16 calls found 24,000 dots.
    assert found.scores.min() == pytest.approx(0.9 - 0.4 * MAX_MERGED / 24_000, abs=0.01)


def test_tiles_after_a_cancellation_are_not_processed() -> None:
    calls: list[int] = []
    token = CancellationToken()

    def model(inputs: Sequence[Any]) -> Sequence[Any]:
        calls.append(len(inputs))
        if len(calls) == 3:
            token.cancel()
        return detect(inputs)

    with cancellation_scope(token), rejects(kind=ErrorKind.CANCELLED):
        answer(tiled("box", model, chunk=2), scene(), tile=SIDE)
    assert calls == [2, 2, 2]


def test_tiles_of_several_requests_fill_the_batches_of_the_model() -> None:
    sizes: list[int] = []
    servable = tiled("box", counting(sizes), chunk=8)
    servable.runner = BatchingRunner(servable.runner, 8, 0.0)
    assert boxes(answer(servable, scene(), tile=SIDE)) == sorted(SPOTS)
    assert sizes == [8, 8]


def quarter(*_: int) -> float:
    return 4.0


def test_images_are_decoded_at_full_size_for_tiles_only() -> None:
    sizes: list[tuple[int, ...]] = []

    def model(inputs: Sequence[Any]) -> Sequence[Any]:
        sizes.extend(item.image.pixels.shape[:2] for item in inputs)
        return detect(inputs)

    servable = tiled("box", model)
    servable.downscale = quarter
    jpeg = cv2.imencode(".jpg", scene())[1].tobytes()
    whole, cut = request(file_input(jpeg)), request(file_input(jpeg, tile=SIDE))
    servable.predict(whole, Limits())
    servable.predict(cut, Limits())
    (streamed,) = servable.predict_each(cut, Limits())
    assert len(boxes(streamed)) == len(SPOTS)
    assert sizes == [(125, 175), *([(SIDE, SIDE)] * 15 + [(500, 700)]) * 2]
