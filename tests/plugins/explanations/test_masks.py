"""Masks are bounded, repeatable and uniform; their weighted means are those by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.plugins.explanations.masks import (
    KEEP_PROBABILITY,
    MaskSource,
    OcclusionMasks,
    RandomMasks,
    WeightedMasks,
    normalize,
)
from app.plugins.explanations.pixels import ExplanationMethod, ExplanationParameters, masks_for

SIDES = st.integers(1, 5000)


def masks_of(method: ExplanationMethod, width: int, height: int, grid: int, seed: int) -> MaskSource:
    return masks_for(ExplanationParameters(method=method, grid=grid, seed=seed), width, height)


@pytest.mark.slow
@given(SIDES, SIDES, st.integers(2, 32), st.sampled_from(ExplanationMethod))
def test_masks_have_the_declared_shape_and_values_within_0_and_1(
    width: int, height: int, grid: int, method: ExplanationMethod
) -> None:
    masks = masks_of(method, width, height, grid, 3)
    batch = masks.draw(4)
    assert batch.shape == (4, *masks.shape)
    assert batch.dtype == np.float32
    assert batch.min() >= 0
    assert batch.max() <= 1


@pytest.mark.parametrize(
    ("width", "height", "cells"), [(100, 100, (8, 8)), (640, 480, (6, 8)), (480, 640, (8, 6)), (1000, 10, (1, 8))]
)
def test_cells_are_nearly_square(width: int, height: int, cells: tuple[int, int]) -> None:
    assert masks_of(ExplanationMethod.OCCLUSION, width, height, 8, 0).shape == cells


@pytest.mark.parametrize("method", ExplanationMethod)
def test_same_seed_gives_the_same_masks_in_any_batching(method: ExplanationMethod) -> None:
    once = masks_of(method, 64, 48, 5, 11).draw(12)
    twice = masks_of(method, 64, 48, 5, 11)
    np.testing.assert_array_equal(once, np.concatenate([twice.draw(7), twice.draw(5)]))
    assert not np.array_equal(once, masks_of(method, 64, 48, 5, 12).draw(12))


@pytest.mark.slow
def test_random_masks_keep_every_pixel_equally_often() -> None:
    masks = RandomMasks(6, 8, 1).draw(4000)
    # The standard deviation of a pixel is at most a half: five of them over the root of 4000 are 0.04.
    np.testing.assert_allclose(masks.mean(axis=0), KEEP_PROBABILITY, atol=0.04)


def test_random_masks_have_smooth_edges() -> None:
    masks = RandomMasks(4, 4, 1).draw(50)
    assert np.abs(np.diff(masks, axis=2)).max() <= 1 / 8 + 1e-5
    assert ((masks > 0.1) & (masks < 0.9)).mean() > 0.3


def test_windows_hide_2x2_cells_and_cover_every_cell_four_times() -> None:
    source = OcclusionMasks(3, 5, 0)
    masks = source.draw(1000)
    assert len(masks) == source.count == 4 * 6
    assert len(np.unique(masks, axis=0)) == len(masks)
    assert {int(window.sum()) for window in 1 - masks} == {1, 2, 4}
    np.testing.assert_array_equal((1 - masks).sum(axis=0), 4)
    assert len(source.draw(3)) == 0


def test_windows_come_in_random_order() -> None:
    source = OcclusionMasks(8, 8, 0)
    hidden = (1 - source.draw(81 // 2)).sum(axis=0)
    assert (hidden[:4] > 0).mean() > 0.7
    assert (hidden[4:] > 0).mean() > 0.7


def test_pixel_value_is_the_mean_score_of_samples_that_show_it() -> None:
    masks = np.array([[[1, 0]], [[1, 1]], [[0, 1]], [[0.5, 0]]], np.float32)
    scores = np.array([[0.8], [0.6], [0.1], [0.4]], np.float32)
    sums = WeightedMasks(1, 1, 2)
    sums.add(masks[:3], scores[:3])
    sums.add(masks[3:], scores[3:])
    expected = [(0.8 + 0.6 + 0.5 * 0.4) / 2.5, (0.6 + 0.1) / 2]
    np.testing.assert_allclose(sums.mean(), [[expected]], rtol=1e-6)
    assert sums.samples == 4
    # A pixel that no sample shows gets the mean.
    hidden = WeightedMasks(1, 1, 2)
    hidden.add(np.array([[[1, 0]], [[1, 0]]], np.float32), np.array([[0.2], [0.6]], np.float32))
    np.testing.assert_allclose(hidden.mean(), [[[0.4, 0.4]]], rtol=1e-6)


def test_targets_are_independent() -> None:
    rng = np.random.default_rng(0)
    masks = rng.random((20, 3, 4)).astype(np.float32)
    scores = rng.random((20, 2)).astype(np.float32)
    both = WeightedMasks(2, 3, 4)
    both.add(masks, scores)
    for index in range(2):
        alone = WeightedMasks(1, 3, 4)
        alone.add(masks, scores[:, index : index + 1])
        np.testing.assert_allclose(alone.mean()[0], both.mean()[index], rtol=1e-5)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1, 3, 2], [0, 1, 0.5]), ([-2, -1, 0], [0, 0.5, 1]), ([0.3, 0.3, 0.3], [0, 0, 0]), ([0, 0, 1e-9], [0, 0, 0])],
)
def test_unit_range_scales_to_0_and_1(values: list[float], expected: list[float]) -> None:
    stretched: NDArray[np.float32] = normalize(np.array([values], np.float32))
    np.testing.assert_allclose(stretched, [expected], atol=1e-6)
