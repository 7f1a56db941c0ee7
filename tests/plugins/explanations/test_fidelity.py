"""Deletion and insertion, as the benchmark measures them: the scores of right and wrong maps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.vision.image import Image
from tests.plugins.explanations.subjects import classifier_of_region, noise
from tests.support.data.saliency_fidelity import area_under_curve, deletion_steps, insertion_steps


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 7))
def test_each_step_deletes_its_share_of_pixels_most_salient_first(width: int, height: int, steps: int) -> None:
    # Every pixel is far from the mean, so that deleted pixels differ from it.
    pixels = noise(width, height)
    saliency = np.random.default_rng(0).permutation(width * height).reshape(height, width).astype(np.float32)
    copies = list(deletion_steps(pixels, saliency, steps))
    assert len(copies) == steps + 1
    np.testing.assert_array_equal(copies[0], pixels)
    assert (copies[-1] == copies[-1][0, 0]).all()
    for step, copy in enumerate(copies):
        mask = saliency >= width * height - round(width * height * step / steps)
        np.testing.assert_array_equal(copy[~mask], pixels[~mask])
        assert (copy[mask] == copies[-1][0, 0]).all()


def test_right_map_scores_better_than_a_wrong_one() -> None:
    region = (slice(0, 30), slice(0, 40))
    pixels = noise(80, 60)
    subject = classifier_of_region(pixels, region)
    right = np.zeros((60, 80), np.float32)
    right[region] = 1
    areas = {
        (name, change.__name__): float(
            area_under_curve(subject.scores([Image(copy) for copy in change(pixels, saliency, 20)], [1.0] * 21))[0]
        )
        for name, saliency in (("right", right), ("wrong", 1 - right))
        for change in (deletion_steps, insertion_steps)
    }
    # The region is a quarter of the image. In the right order, a quarter of the steps removes or restores it.
    assert areas["right", "deletion_steps"] == pytest.approx(1 / 8, abs=0.02)
    assert areas["right", "insertion_steps"] == pytest.approx(7 / 8, abs=0.06)
    assert areas["wrong", "deletion_steps"] == pytest.approx(7 / 8, abs=0.02)
    assert areas["wrong", "insertion_steps"] == pytest.approx(1 / 8, abs=0.06)
