"""Explanations of models whose true saliency is known, and the documentation of their parameters."""

from collections.abc import Sequence
from typing import Any

import cv2
import msgspec
import numpy as np
import pytest

from app.plugins.explanations.pixels import (
    MAX_SIDE,
    Explanation,
    ExplanationMethod,
    ExplanationParameters,
    ExplanationTarget,
    explain_target,
    sample_count,
)
from app.plugins.explanations.request import explanation_targets
from tasks.image_classification import LabelledScore
from tasks.inference.limits import Limits
from tasks.vision.request import ImageItem
from tests.core.runtimes.onnxruntime.images.test_reduced_decode import image_input, servable
from tests.plugins.explanations.subjects import classifier_of_region, noise, objects
from tests.support.data.images import rectangle, rotated_rectangle
from tests.support.data.requests import request
from tests.support.servers.server_process import ROOT

REGION = (slice(0, 40), slice(60, 120))
"""The upper right quarter of an image of 120x80."""


def explain(subject: ExplanationTarget, **parameters: Any) -> list[Explanation]:
    options = msgspec.convert(parameters, ExplanationParameters)
    return explain_target(subject, options, sample_count(subject, options, 300), lambda: True)


@pytest.mark.parametrize("method", ExplanationMethod)
def test_saliency_covers_the_region_that_the_model_uses(method: ExplanationMethod) -> None:
    (explanation,) = explain(classifier_of_region(noise(120, 80), REGION), method=method)
    assert (explanation.label, explanation.method, explanation.width, explanation.height) == ("there", method, 120, 80)
    saliency = explanation.saliency
    assert saliency.shape == (80, 120)
    assert saliency.dtype == np.float32
    assert (saliency.min(), saliency.max()) == pytest.approx((0, 1), abs=0.05)
    inside = np.zeros((80, 120), np.bool_)
    inside[REGION] = True
    assert inside[np.unravel_index(saliency.argmax(), saliency.shape)]
    assert saliency[inside].mean() > saliency[~inside].mean() + 0.3


@pytest.mark.slow
@pytest.mark.parametrize("method", ExplanationMethod)
@pytest.mark.parametrize("task", ["detector", "oriented", "segmenter"])
def test_saliency_of_an_object_covers_its_pixels(task: str, method: ExplanationMethod) -> None:
    pixels = rotated_rectangle(120, 90, (80, 30), (40, 20), 0.5)
    (explanation,) = explain(objects(task, pixels), method=method)
    bright = pixels.max(axis=2) > 0
    saliency = explanation.saliency
    assert saliency[bright].mean() > saliency[~bright].mean() + 0.3
    near = cv2.dilate(bright.astype(np.uint8), np.ones((9, 9), np.uint8))
    assert near[np.unravel_index(saliency.argmax(), saliency.shape)]
    assert explanation.record == objects(task, pixels).predictions.records()[0]


def test_no_detections_give_no_explanations_and_no_model_calls() -> None:
    def fail(_: Sequence[Any]) -> Sequence[Any]:
        raise AssertionError

    subject = objects("detector", rectangle(box=(0, 0, 0, 0)))
    assert explain(msgspec.structs.replace(subject, model=fail)) == []
    # A model that answers every copy alike has an empty map.
    region = classifier_of_region(noise(40, 40), (slice(0, 40), slice(0, 40)))

    def answer_alike(items: Sequence[Any]) -> Sequence[Any]:
        return region.model([region.item] * len(items))

    assert not explain(msgspec.structs.replace(region, model=answer_alike), samples=20)[0].saliency.any()


@pytest.mark.parametrize(("samples", "chunks"), [(1, 1), (16, 1), (17, 2), (100, 7)])
def test_model_gets_the_requested_samples_in_chunks(samples: int, chunks: int) -> None:
    subject, calls = classifier_of_region(noise(120, 80), REGION), list[int]()

    def count(items: Sequence[Any]) -> Sequence[Any]:
        calls.append(len(items))
        return subject.model(items)

    (explanation,) = explain(msgspec.structs.replace(subject, model=count), samples=samples)
    assert (sum(calls), len(calls), explanation.samples) == (samples, chunks, samples)
    (ended,) = explain_target(subject, ExplanationParameters(), 400, lambda: False)
    assert ended.samples == 16


@pytest.mark.slow
def test_large_images_are_downscaled_and_batched() -> None:
    width, height = 2 * MAX_SIDE, MAX_SIDE
    pixels = rectangle(width, height, (300, 200, 700, 600))
    subject, sizes = objects("detector", pixels), list[tuple[int, ...]]()

    def record_sizes(items: Sequence[Any]) -> Sequence[Any]:
        sizes.extend((len(items), *item.image.pixels.shape) for item in items)
        return subject.model(items)

    (explanation,) = explain(msgspec.structs.replace(subject, model=record_sizes), method="occlusion", grid=4)
    assert {size[1:] for size in sizes} == {(MAX_SIDE // 2, MAX_SIDE, 3)}
    assert max(size[0] for size in sizes) <= 5
    assert (explanation.width, explanation.height) == (width, height)
    saliency = explanation.saliency[::16, ::16]
    bright = pixels[::16, ::16].max(axis=2) > 0
    assert saliency[bright].mean() > saliency[~bright].mean() + 0.2


@pytest.mark.parametrize(("method", "expected"), [("rise", 7), ("occlusion", 3 * 5)])
def test_sample_count_depends_on_the_method(method: str, expected: int) -> None:
    target = classifier_of_region(noise(160, 80), REGION)
    options = msgspec.convert({"method": method, "grid": 4}, ExplanationParameters)
    assert sample_count(target, options, 7) == expected


def test_every_parameter_and_method_is_documented() -> None:
    document = (ROOT / "docs" / "explanations.md").read_text()
    names = [f"| `{field.name}` |" for field in msgspec.structs.fields(ExplanationParameters)]
    missing = [text for text in (*names, *(f"`{method}`:" for method in ExplanationMethod)) if text not in document]
    assert not missing


@pytest.mark.parametrize(("width", "height"), [(6, 4), (300, 200), (1, 1), (3, 2000)])
def test_saliency_has_the_image_size_and_values_within_0_and_1(width: int, height: int) -> None:
    saliency = sized_explanation(width, height).saliency
    assert (saliency.shape, saliency.dtype) == ((height, width), np.float32)
    assert 0 <= saliency.min() <= saliency.max() <= 1


def sized_explanation(width: int, height: int) -> Explanation:
    """Return an explanation of an image of this size."""
    coarse = np.array([[0, 0.5, 1], [1, 0, 0.25]], np.float32)
    record, method = LabelledScore("a", 0.5), ExplanationMethod.RISE
    return Explanation(
        label="a", score=0.5, record=record, coarse=coarse, width=width, height=height, method=method, samples=3, seed=0
    )


def test_explanation_uses_full_image() -> None:
    _, targets = explanation_targets(
        servable("detector", reduced=True), request(image_input("scene.jpg")), Limits(), None, 1
    )
    item: ImageItem[Any] = targets[0].item
    assert item.image.full_size is None
