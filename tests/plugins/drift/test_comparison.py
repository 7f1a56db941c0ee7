"""Comparison of samples, and samples that are rejected."""

from typing import Any

import msgspec
import numpy as np
import pytest

from app.plugins.drift.comparison import compare
from app.plugins.drift.sample import OTHER_LABELS, DriftError, build_sample
from tests.support.data.drift_samples import observations, sample


def test_shifted_sample_drifts_and_equal_sample_does_not() -> None:
    baseline = sample(120, with_predictions=True)
    assert not compare(baseline, sample(100, 1, with_predictions=True)).drifted
    comparison = compare(baseline, sample(100, 1, shift=1, with_predictions=True))
    assert comparison.drifted
    drifted = {test.name for test in comparison.tests if test.drifted}
    assert drifted >= {"Kolmogorov-Smirnov", "MMD of embeddings", "similarity tail"}
    assert comparison.production_similarity < comparison.baseline_similarity


def test_comparison_is_deterministic() -> None:
    pair = sample(60), sample(60, 1)
    assert msgspec.json.encode(compare(*pair)) == msgspec.json.encode(compare(*pair))


def test_outliers_are_sorted_most_distant_first() -> None:
    production = sample(100, 1)
    production.numbers[7] += 20
    production.numbers[9] += 10
    comparison = compare(sample(100), production)
    assert [outlier.id for outlier in comparison.outliers[:2]] == ["7", "9"]


def test_new_labels_are_marked_and_cause_drift() -> None:
    production = sample(100, 1, with_predictions=True)
    production = msgspec.structs.replace(production, labels=["cat", "mouse"])
    comparison = compare(sample(100, with_predictions=True), production)
    assert {label.label: label.known for label in comparison.labels} == {"cat": True, "dog": True, "mouse": False}
    assert next(test for test in comparison.tests if test.name == "chi-square").drifted


def test_fewer_than_two_labels_are_noted_without_drift() -> None:
    for labels in ([], ["cat"]):
        counts = np.full((50, len(labels)), 2, np.int64)
        samples = [sample(50, seed, with_predictions=True) for seed in (0, 1)]
        first, second = (msgspec.structs.replace(one, labels=labels, counts=counts) for one in samples)
        comparison = compare(first, second)
        assert not comparison.drifted
        assert "Labels: fewer than two were found; not compared" in comparison.notes


def test_features_of_only_one_sample_are_skipped_with_a_note() -> None:
    comparison = compare(sample(50, with_predictions=True), sample(50, 1, with_embeddings=False))
    assert not comparison.drifted
    assert comparison.notes == [
        "Only one of both has findings, best score, mean score; not compared",
        "Only one of both has embeddings; not compared",
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task_type": "IMAGE_CLASSIFICATION"}, "is of OBJECT_DETECTION, production of IMAGE_CLASSIFICATION: compare"),
        ({"embeddings": np.zeros((40, 7), np.float32)}, "has embeddings of 24 numbers, production of 7: use one"),
        ({"features": ["other"], "numbers": np.zeros((40, 1))}, "baseline and production have no number in common"),
    ],
)
def test_incompatible_samples_are_rejected(changes: dict[str, Any], message: str) -> None:
    known = sample(40, with_predictions=True)
    with pytest.raises(DriftError, match=message):
        compare(known, msgspec.structs.replace(known, **changes))


def test_labels_are_not_compared_with_a_sample_without_answers() -> None:
    result = compare(sample(60, with_predictions=True), sample(60, 1, task="OBJECT_DETECTION"))
    assert "chi-square" not in {test.name for test in result.tests}
    assert (list(result.labels), result.drifted) == ([], False)


def test_first_observation_of_an_id_is_used() -> None:
    first = observations(40)
    repeated = build_sample([*first, *observations(40, 1)])
    assert len(repeated) == 40
    assert (repeated.numbers == build_sample(first).numbers).all()


def test_sample_without_pixels_needs_answers_and_is_skipped_beside_pixels() -> None:
    seen = observations(40, with_predictions=True, prefix="no ")
    without_pixels = [msgspec.structs.replace(observation, image=None, embedding=None) for observation in seen]
    assert len(build_sample([*without_pixels, *observations(40)])) == 40
    assert build_sample(without_pixels, "OBJECT_DETECTION").features == ("findings", "best score", "mean score")
    empty = [msgspec.structs.replace(observation, findings=None) for observation in without_pixels]
    with pytest.raises(DriftError, match="neither pixels nor answers"):
        build_sample(empty)


def test_invalid_embeddings_are_rejected() -> None:
    invalid = observations(40)
    for embedding, message in (
        (np.full(24, np.nan, np.float32), "The embedding of '3' in x are not finite"),
        (np.zeros(5, np.float32), "Expected embeddings of one length in x, got 5, 24"),
    ):
        invalid[3] = msgspec.structs.replace(invalid[3], embedding=embedding)
        with pytest.raises(DriftError, match=message):
            build_sample(invalid, sample_name="x")


def test_too_few_images_are_rejected() -> None:
    with pytest.raises(DriftError, match="Expected 30 images at least to measure drift, got 0 in x"):
        build_sample([], sample_name="x")


def test_labels_above_the_limit_are_counted_as_other() -> None:
    labelled = [
        msgspec.structs.replace(observation, labels={f"{index} {n}": 1 for n in range(200)} | {"cat": 3})
        for index, observation in enumerate(observations(40, with_predictions=True))
    ]
    combined = build_sample(labelled, "OBJECT_DETECTION")
    assert len(combined.labels) == 5001
    assert combined.labels[-1] == OTHER_LABELS
    assert combined.counts.sum() == 40 * 203
    assert combined.counts[:, list(combined.labels).index("cat")].tolist() == [3] * 40
    tested = compare(combined, combined).tests
    assert next(test for test in tested if test.name == "chi-square").p == 1


def test_label_drift_at_a_small_level_draws_more_permutations() -> None:
    production = sample(100, 1, with_predictions=True)
    production.counts[:] = production.counts.sum(axis=1, keepdims=True) * np.array([1, 0])
    comparison = compare(sample(100, with_predictions=True), production, alpha=0.001)
    assert next(test for test in comparison.tests if test.name == "chi-square").drifted
