"""Masks are bounded, repeatable and uniform; their weighted means are those by hand."""

from itertools import islice

import numpy as np
import pytest
from numpy.typing import NDArray

from app.plugins.explanations.masks import (
    KEEP_PROBABILITY,
    WeightedMasks,
    normalize,
    occlusion_masks,
    random_masks,
    window_count,
)
from app.plugins.explanations.pixels import ExplanationMethod, ExplanationParameters, masks_for
from tasks.vision.image import Image


def masks_of(method: ExplanationMethod, width: int, height: int, seed: int = 0) -> NDArray[np.float32]:
    image = Image(np.zeros((height, width, 3), np.uint8))
    return np.stack([*islice(masks_for(ExplanationParameters(method=method, seed=seed), image), 12)])


@pytest.mark.parametrize(("method", "size"), [(ExplanationMethod.OCCLUSION, 1), (ExplanationMethod.RISE, 8)])
def test_masks_have_nearly_square_cells_values_within_0_and_1_and_repeat_with_their_seed(
    method: ExplanationMethod, size: int
) -> None:
    for width, height, rows, columns in ((100, 100, 8, 8), (640, 480, 6, 8), (48, 64, 8, 6), (1000, 10, 1, 8)):
        masks = masks_of(method, width, height)
        assert masks.shape[1:] == (rows * size, columns * size)
        assert (masks.dtype, masks.min() >= 0, masks.max() <= 1) == (np.float32, True, True)
        np.testing.assert_array_equal(masks, masks_of(method, width, height))
        assert not np.array_equal(masks, masks_of(method, width, height, seed=1))


@pytest.mark.slow
def test_random_masks_keep_every_pixel_equally_often() -> None:
    masks = np.stack([*islice(random_masks(6, 8, 1), 4000)])
    # The standard deviation of a pixel is at most a half: five of them over the root of 4000 are 0.04.
    np.testing.assert_allclose(masks.mean(axis=0), KEEP_PROBABILITY, atol=0.04)


def test_random_masks_have_smooth_edges() -> None:
    masks = np.stack([*islice(random_masks(4, 4, 1), 50)])
    assert np.abs(np.diff(masks, axis=2)).max() <= 1 / 8 + 1e-5
    assert ((masks > 0.1) & (masks < 0.9)).mean() > 0.3


def test_windows_hide_2x2_cells_and_cover_every_cell_four_times() -> None:
    hidden = 1 - np.stack([*occlusion_masks(3, 5, 0)])
    assert len(hidden) == len(np.unique(hidden, axis=0)) == window_count(3, 5) == 4 * 6
    assert {int(window.sum()) for window in hidden} == {1, 2, 4}
    np.testing.assert_array_equal(hidden.sum(axis=0), 4)


def test_windows_come_in_random_order() -> None:
    hidden = (1 - np.stack([*islice(occlusion_masks(8, 8, 0), 81 // 2)])).sum(axis=0)
    assert (hidden[:4] > 0).mean() > 0.7
    assert (hidden[4:] > 0).mean() > 0.7


def test_pixel_value_of_each_target_is_the_mean_score_of_samples_that_show_it() -> None:
    masks = np.array([[[1, 0]], [[1, 1]], [[0, 1]], [[0.5, 0]]], np.float32)
    scores = np.array([[0.8, 0], [0.6, 1], [0.1, 0], [0.4, 0]], np.float32)
    sums = WeightedMasks()
    sums.add(masks[:3], scores[:3])
    sums.add(masks[3:], scores[3:])
    expected = [[(0.8 + 0.6 + 0.5 * 0.4) / 2.5, (0.6 + 0.1) / 2]], [[1 / 2.5, 1 / 2]]
    np.testing.assert_allclose(sums.mean(), expected, rtol=1e-6)
    assert sums.samples == 4
    # A pixel that no sample shows gets the mean.
    hidden = WeightedMasks()
    hidden.add(np.array([[[1, 0]], [[1, 0]]], np.float32), np.array([[0.2], [0.6]], np.float32))
    np.testing.assert_allclose(hidden.mean(), [[[0.4, 0.4]]], rtol=1e-6)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1, 3, 2], [0, 1, 0.5]), ([-2, -1, 0], [0, 0.5, 1]), ([0.3, 0.3, 0.3], [0, 0, 0]), ([0, 0, 1e-9], [0, 0, 0])],
)
def test_unit_range_scales_to_0_and_1(values: list[float], expected: list[float]) -> None:
    stretched: NDArray[np.float32] = normalize(np.array([values], np.float32))
    np.testing.assert_allclose(stretched, [expected], atol=1e-6)
