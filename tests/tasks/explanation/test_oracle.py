"""The same masks and scores, combined here and by xaitk-saliency."""

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.explanation.combination import WeightedMasks, unit_range
from tasks.explanation.masks import MaskSource, OcclusionMasks, RandomMasks
from tests.support.environments import python_with
from tests.support.server_process import ROOT

pytestmark = pytest.mark.slow

WHOLE = np.array([0.9, 0.6], np.float32)


def combined(source: MaskSource, masks: NDArray[np.float32], scores: NDArray[np.float32]) -> NDArray[np.float32]:
    sums = WeightedMasks(scores.shape[1], *source.shape)
    sums.add(source.told(masks), scores)
    return np.stack([unit_range(each) for each in source.saliency(sums.mean())])


def two_classes(masks: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scores of two classes that look at one corner each, and a little noise."""
    rows, columns = masks.shape[1] // 3, masks.shape[2] // 3
    seen = np.stack(
        [masks[:, :rows, :columns].mean(axis=(1, 2)), masks[:, -rows:, -columns:].mean(axis=(1, 2))], axis=1
    )
    noise = np.random.default_rng(2).normal(0, 0.02, seen.shape)
    return np.clip(WHOLE * seen + noise, 0, 1).astype(np.float32)


def stretched(maps: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.stack([unit_range(each) for each in maps])


def test_maps_are_those_of_the_oracle(tmp_path: Path) -> None:
    rise, occlusion = RandomMasks(6, 8, 1), OcclusionMasks(6, 8, 1)
    masks, windows = rise.take(600), occlusion.take(occlusion.count)
    scores, window_scores = two_classes(masks), two_classes(windows)
    np.savez(
        tmp_path / "given.npz",
        masks=masks,
        scores=scores,
        windows=windows,
        window_scores=window_scores,
        whole=WHOLE,
    )
    command = [str(python_with("xaitk")), str(ROOT / "tests" / "clients" / "with_xaitk.py"), str(tmp_path)]
    subprocess.run(command, check=True, timeout=120)
    oracle = np.load(tmp_path / "oracle.npz")
    np.testing.assert_allclose(combined(occlusion, windows, window_scores), stretched(oracle["occlusion"]), atol=1e-5)
    # The oracle leaves out the division by the masks, without which ours is the same ...
    sums = WeightedMasks(2, *rise.shape)
    sums.add(masks, scores)
    np.testing.assert_allclose(stretched(sums.mean() * masks.sum(axis=0)), stretched(oracle["rise"]), atol=1e-5)
    # ... and with which it is closer to the truth than what the oracle has, with the bias of the masks and without.
    truth = np.zeros((2, *rise.shape))
    truth[0, : rise.shape[0] // 3, : rise.shape[1] // 3] = truth[1, -rise.shape[0] // 3 :, -rise.shape[1] // 3 :] = 1
    ours = combined(rise, masks, scores)
    for index in range(2):
        assert _likeness(ours[index], oracle["debiased"][index]) > 0.8
        assert _likeness(ours[index], truth[index]) > 0.85
        for other in ("rise", "debiased"):
            assert _likeness(ours[index], truth[index]) > _likeness(oracle[other][index], truth[index])


def _likeness(first: NDArray[Any], second: NDArray[Any]) -> float:
    return float(np.corrcoef(first.ravel(), second.ravel())[0, 1])
