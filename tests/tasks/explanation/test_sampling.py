"""Explanations of models whose reasons are known."""

from collections.abc import Sequence
from typing import Any

import cv2
import msgspec
import numpy as np
import pytest

from tasks.explanation.explanation import Explanation, ExplanationMethod, ExplanationParameters
from tasks.explanation.sampling import LONGEST_SIDE, Subject, hide, sample_count, sampled
from tests.support.pictures import rectangle, turned_rectangle
from tests.tasks.explanation.subjects import looking_at, noise, objects

QUADRANTS = {
    "top left": (slice(0, 40), slice(0, 60)),
    "top right": (slice(0, 40), slice(60, 120)),
    "bottom left": (slice(40, 80), slice(0, 60)),
    "bottom right": (slice(40, 80), slice(60, 120)),
}


def explained(subject: Subject[Any, Any], **parameters: Any) -> list[Explanation]:
    wanted = msgspec.convert(parameters, ExplanationParameters)
    return sampled(subject, wanted, sample_count(subject.image, wanted, 300), lambda: True)


@pytest.mark.parametrize("method", ExplanationMethod)
@pytest.mark.parametrize("quadrant", QUADRANTS)
def test_a_model_that_looks_at_one_quadrant_is_explained_by_it(quadrant: str, method: ExplanationMethod) -> None:
    region = QUADRANTS[quadrant]
    (found,) = explained(looking_at(noise(120, 80), region), method=method)
    assert (found.label, found.method, found.width, found.height) == ("there", method, 120, 80)
    saliency = found.saliency
    assert saliency.shape == (80, 120)
    assert saliency.dtype == np.float32
    assert (saliency.min(), saliency.max()) == pytest.approx((0, 1), abs=0.05)
    inside = np.zeros((80, 120), np.bool_)
    inside[region] = True
    assert inside[np.unravel_index(saliency.argmax(), saliency.shape)]
    assert saliency[inside].mean() > saliency[~inside].mean() + 0.3


@pytest.mark.parametrize("method", ExplanationMethod)
@pytest.mark.parametrize("task", ["detector", "oriented", "segmenter"])
def test_an_object_is_explained_by_its_own_pixels(task: str, method: ExplanationMethod) -> None:
    pixels = turned_rectangle(120, 90, (80, 30), (40, 20), 0.5)
    (found,) = explained(objects(task, pixels), method=method)
    lit = pixels.max(axis=2) > 0
    saliency = found.saliency
    assert saliency[lit].mean() > saliency[~lit].mean() + 0.3
    near = cv2.dilate(lit.astype(np.uint8), np.ones((9, 9), np.uint8))
    assert near[np.unravel_index(saliency.argmax(), saliency.shape)]
    assert found.record == objects(task, pixels).targets.records()[0]


def test_a_model_that_looks_nowhere_has_no_reason() -> None:
    subject = looking_at(noise(40, 40), (slice(0, 40), slice(0, 40)))

    def answer_the_same(items: Sequence[Any]) -> Sequence[Any]:
        return subject.model([subject.item] * len(items))

    (found,) = explained(msgspec.structs.replace(subject, model=answer_the_same), samples=20)
    assert not found.saliency.any()


def test_the_seed_decides() -> None:
    subject = looking_at(noise(60, 40), QUADRANTS["top left"])
    first, again, other = (explained(subject, samples=40, seed=seed)[0].coarse for seed in (4, 4, 5))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_nothing_found_is_nothing_shown() -> None:
    calls: list[int] = []

    def count(items: Sequence[Any]) -> Sequence[Any]:
        calls.append(len(items))
        return []

    subject = objects("detector", rectangle(box=(0, 0, 0, 0)))
    assert explained(msgspec.structs.replace(subject, model=count)) == []
    assert calls == []


@pytest.mark.parametrize(("samples", "chunks"), [(1, 1), (16, 1), (17, 2), (100, 7)])
def test_the_model_is_shown_as_many_copies_as_were_asked_for_a_few_at_a_time(samples: int, chunks: int) -> None:
    subject, calls = looking_at(noise(60, 40), QUADRANTS["top left"]), list[int]()

    def count(items: Sequence[Any]) -> Sequence[Any]:
        calls.append(len(items))
        return subject.model(items)

    (found,) = explained(msgspec.structs.replace(subject, model=count), samples=samples)
    assert (sum(calls), len(calls), found.samples) == (samples, chunks, samples)


def test_it_stops_when_told_to_and_says_how_far_it_came() -> None:
    left = iter([True, True, False])
    subject = looking_at(noise(60, 40), QUADRANTS["top left"])
    (found,) = sampled(subject, ExplanationParameters(), 400, lambda: next(left))
    assert found.samples == 48


def test_large_pictures_are_shown_smaller_and_a_few_at_a_time() -> None:
    width, height = 2 * LONGEST_SIDE, LONGEST_SIDE
    pixels = rectangle(width, height, (300, 200, 700, 600))
    subject, sizes = objects("detector", pixels), list[tuple[int, ...]]()

    def watch(items: Sequence[Any]) -> Sequence[Any]:
        sizes.extend((len(items), *each.image.pixels.shape) for each in items)
        return subject.model(items)

    (found,) = explained(msgspec.structs.replace(subject, model=watch), method="occlusion")
    assert {each[1:] for each in sizes} == {(LONGEST_SIDE // 2, LONGEST_SIDE, 3)}
    assert max(each[0] for each in sizes) <= 5
    assert (found.width, found.height) == (width, height)
    saliency = found.saliency[::16, ::16]
    lit = pixels[::16, ::16].max(axis=2) > 0
    assert saliency[lit].mean() > saliency[~lit].mean() + 0.2


def test_what_is_hidden_takes_the_fill_and_what_is_kept_stays() -> None:
    pixels = noise(40, 20)
    backdrop = np.random.default_rng(1).integers(0, 256, pixels.shape, np.uint8)
    np.testing.assert_array_equal(hide(pixels, np.ones((2, 2), np.float32), backdrop), pixels)
    np.testing.assert_array_equal(hide(pixels, np.zeros((2, 2), np.float32), backdrop), backdrop)
    half = hide(pixels, np.full((2, 2), 0.5, np.float32), backdrop)
    np.testing.assert_allclose(half, (pixels.astype(float) + backdrop) / 2, atol=1.5)


@pytest.mark.parametrize(("method", "expected"), [("rise", 7), ("occlusion", 3 * 5)])
def test_how_many_samples_a_method_takes(method: str, expected: int) -> None:
    image = looking_at(noise(80, 40), QUADRANTS["top left"]).image
    wanted = msgspec.convert({"method": method, "grid": 4}, ExplanationParameters)
    assert sample_count(image, wanted, 7) == expected
