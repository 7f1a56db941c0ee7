"""Weighted means of masks, compared with values computed by hand."""

import numpy as np
import pytest
from numpy.typing import NDArray

from app.plugins.explanations.masks import WeightedMasks, normalize


def test_pixel_value_is_the_mean_score_of_samples_that_show_it() -> None:
    masks = np.array([[[1, 0]], [[1, 1]], [[0, 1]], [[0.5, 0]]], np.float32)
    scores = np.array([[0.8], [0.6], [0.1], [0.4]], np.float32)
    sums = WeightedMasks(1, 1, 2)
    sums.add(masks[:3], scores[:3])
    sums.add(masks[3:], scores[3:])
    expected = [(0.8 + 0.6 + 0.5 * 0.4) / 2.5, (0.6 + 0.1) / 2]
    np.testing.assert_allclose(sums.mean(), [[expected]], rtol=1e-6)
    assert sums.samples == 4


def test_targets_are_independent() -> None:
    rng = np.random.default_rng(0)
    masks = rng.random((20, 3, 4)).astype(np.float32)
    scores = rng.random((20, 2)).astype(np.float32)
    both = WeightedMasks(2, 3, 4)
    both.add(masks, scores)
    for index in range(2):
        alone = WeightedMasks(1, 3, 4)
        alone.add(masks, scores[:, index : index + 1])
        np.testing.assert_allclose(alone.mean()[0], both.mean()[index])


def test_pixel_that_no_sample_shows_gets_the_mean() -> None:
    sums = WeightedMasks(1, 1, 2)
    sums.add(np.array([[[1, 0]], [[1, 0]]], np.float32), np.array([[0.2], [0.6]], np.float32))
    np.testing.assert_allclose(sums.mean(), [[[0.4, 0.4]]], rtol=1e-6)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1, 3, 2], [0, 1, 0.5]), ([-2, -1, 0], [0, 0.5, 1]), ([0.3, 0.3, 0.3], [0, 0, 0]), ([0, 0, 1e-9], [0, 0, 0])],
)
def test_unit_range_scales_to_0_and_1(values: list[float], expected: list[float]) -> None:
    stretched: NDArray[np.float32] = normalize(np.array([values], np.float32))
    np.testing.assert_allclose(stretched, [expected], atol=1e-6)
