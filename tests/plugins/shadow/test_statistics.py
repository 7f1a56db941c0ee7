"""Statistics of pairs, against SciPy."""

from typing import Any

import numpy as np
import pytest
import scipy.stats

from app.plugins.shadow.statistics import compare, losing, mcnemar, needed_images

_stats: Any = scipy.stats


PAIRS = [(0, 0), (3, 9), (12, 12), (1, 0), (24, 0), (20, 5), (50, 50), (300, 220)]


@pytest.mark.parametrize(("only_champion", "only_shadow"), PAIRS)
def test_p_value_is_exact_for_few_unequal_pairs_and_corrected_for_many(only_champion: int, only_shadow: int) -> None:
    count = only_champion + only_shadow
    if count < 25:
        expected = _stats.binomtest(only_champion, count, 0.5).pvalue if count else 1.0
    else:
        expected = _stats.chi2.sf(max(0, abs(only_champion - only_shadow) - 1) ** 2 / count, 1)
    assert mcnemar(only_champion, only_shadow) == pytest.approx(expected)


def test_interval_of_a_difference_is_that_of_paired_images() -> None:
    rng = np.random.default_rng(0)
    champion = rng.uniform(size=800) < 0.8
    shadow = np.where(rng.uniform(size=800) < 0.9, champion, ~champion)
    counts = [np.stack([hits, ~hits, ~hits], axis=1).astype(np.float64) for hits in (champion, shadow)]
    comparison, _ = compare(*counts)
    reference = _stats.bootstrap(
        (shadow.astype(float) - champion,), np.mean, n_resamples=2000, method="percentile", random_state=1
    ).confidence_interval
    assert comparison.champion == pytest.approx(champion.mean())
    assert comparison.difference.value == pytest.approx(shadow.mean() - champion.mean())
    assert comparison.difference.low == pytest.approx(reference.low, abs=0.004)
    assert comparison.difference.high == pytest.approx(reference.high, abs=0.004)
    half = (comparison.difference.high - comparison.difference.low) / 2
    assert needed_images(*counts, margin=half) == pytest.approx(800, rel=0.1)


def test_nothing_to_find_and_nothing_found_is_right() -> None:
    comparison, _ = compare(np.zeros((1, 3)), np.zeros((1, 3)))
    assert (comparison.champion, comparison.shadow) == (1.0, 1.0)


def test_more_classes_need_more_evidence_of_a_loss() -> None:
    clear, weak, none = np.full(100, -0.2), np.linspace(-0.2, -0.045, 100), np.zeros(100)
    assert losing({"a": weak}, 0.05) == ["a"]
    assert losing({"a": weak, "b": none, "c": none}, 0.05) == []
    assert losing({"a": weak, "b": clear}, 0.05) == ["b", "a"]
