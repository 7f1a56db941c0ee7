"""Saliency maps of the same masks and scores, computed here and by xaitk-saliency."""

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.plugins.explanations.masks import MaskSource, OcclusionMasks, RandomMasks, WeightedMasks, normalize
from tests.support.servers.client_environments import python_with
from tests.support.servers.server_process import ROOT

pytestmark = pytest.mark.slow

UNMASKED_SCORES = np.array([0.9, 0.6], np.float32)


def saliency_maps(source: MaskSource, masks: NDArray[np.float32], scores: NDArray[np.float32]) -> NDArray[np.float32]:
    sums = WeightedMasks(scores.shape[1], *source.shape, hides=source.hides)
    sums.add(masks, scores)
    return np.stack([normalize(values) for values in sums.mean()])


def two_classes(masks: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return scores of two classes that depend on one corner each, with a little noise."""
    rows, columns = masks.shape[1] // 3, masks.shape[2] // 3
    visible = np.stack(
        [masks[:, :rows, :columns].mean(axis=(1, 2)), masks[:, -rows:, -columns:].mean(axis=(1, 2))], axis=1
    )
    noise = np.random.default_rng(2).normal(0, 0.02, visible.shape)
    return np.clip(UNMASKED_SCORES * visible + noise, 0, 1).astype(np.float32)


def scaled(maps: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.stack([normalize(values) for values in maps])


def test_maps_agree_with_xaitk_saliency(tmp_path: Path) -> None:
    rise, occlusion = RandomMasks(6, 8, 1), OcclusionMasks(6, 8, 1)
    masks, windows = rise.draw(600), occlusion.draw(7 * 9)
    scores, window_scores = two_classes(masks), two_classes(windows)
    given: dict[str, Any] = {"masks": masks, "scores": scores, "windows": windows, "window_scores": window_scores}
    np.savez(tmp_path / "given.npz", **given, whole=UNMASKED_SCORES)
    command = [str(python_with("xaitk")), str(ROOT / "tests" / "clients" / "with_xaitk.py"), str(tmp_path)]
    subprocess.run(command, check=True, timeout=120)
    oracle = np.load(tmp_path / "oracle.npz")
    np.testing.assert_allclose(saliency_maps(occlusion, windows, window_scores), scaled(oracle["occlusion"]), atol=1e-5)
    # xaitk-saliency does not divide by the masks. Without that division our maps equal its maps.
    sums = WeightedMasks(2, *rise.shape)
    sums.add(masks, scores)
    np.testing.assert_allclose(scaled(sums.mean() * masks.sum(axis=0)), scaled(oracle["rise"]), atol=1e-5)
    # With it, our maps are closer to the truth than both variants of xaitk-saliency.
    truth = np.zeros((2, *rise.shape))
    truth[0, : rise.shape[0] // 3, : rise.shape[1] // 3] = truth[1, -rise.shape[0] // 3 :, -rise.shape[1] // 3 :] = 1
    ours = saliency_maps(rise, masks, scores)
    for index in range(2):
        assert _correlation(ours[index], oracle["debiased"][index]) > 0.8
        assert _correlation(ours[index], truth[index]) > 0.85
        for other in ("rise", "debiased"):
            assert _correlation(ours[index], truth[index]) > _correlation(oracle[other][index], truth[index])


def _correlation(first: NDArray[Any], second: NDArray[Any]) -> float:
    return float(np.corrcoef(first.ravel(), second.ravel())[0, 1])
