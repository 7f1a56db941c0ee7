"""Deletion and insertion, as the benchmark measures them: the scores of right and wrong maps."""

import numpy as np
import pytest

from tasks.vision.image import Image
from tests.plugins.explanations.subjects import classifier_of_region, noise
from tests.support.data.saliency_fidelity import area_under_curve, deletion_steps, insertion_steps


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
