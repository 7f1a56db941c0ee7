"""Comparison of samples and of the mix of their metadata, and samples that are rejected."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from app.plugins.drift.comparison import compare
from app.plugins.drift.sample import OTHER_LABELS, DriftError, Sample, build_sample
from app.plugins.drift.suite import MixDrift, compare_mix, describe_change
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
    assert {label.value: bool(label.baseline) for label in comparison.labels} == {
        "cat": True, "dog": True, "mouse": False,
    }  # fmt: skip
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


BASELINE, PRODUCTION = 200, 120


def with_metadata(count: int, **values: Callable[[int], str | None]) -> Sample:
    """Return images whose metadata is computed from their index; None leaves a key out."""
    metadata = [
        {key: text for key, value in values.items() if (text := value(index)) is not None} for index in range(count)
    ]
    return msgspec.structs.replace(sample(count), metadata=metadata)


def mix_of(first: Sample, second: Sample, permutations: int = 999) -> tuple[dict[str, MixDrift], list[str]]:
    notes: list[str] = []
    drifts = compare_mix(first, second, 0.01, permutations, np.random.default_rng(0), notes)
    return {drift.key: drift for drift in drifts}, notes


def cycle(*values: str | None) -> Callable[[int], str | None]:
    return lambda index: values[index % len(values)]


def test_new_and_vanished_cameras_drift_and_are_named() -> None:
    first = with_metadata(BASELINE, camera=cycle("north", "east", "west"))
    second = with_metadata(PRODUCTION, camera=cycle("north", "east", "lobby"))
    (test,) = [test for test in compare(first, second).tests if test.name == "mix"]
    assert test.drifted
    assert (test.about, test.where) == ("metadata: camera", "camera: new lobby; gone west")
    (drift,) = mix_of(first, second)[0].values()
    counts = [(value.value, value.baseline, value.production) for value in drift.values]
    assert counts[:2] == [("lobby", 0, 40), ("west", 66, 0)]


def test_changed_shares_and_missing_values_drift() -> None:
    same = cycle("x", "y", "z")
    first = with_metadata(BASELINE, camera=cycle("north", "east"), firmware=cycle("1"), same=same)
    cameras, firmware = cycle("north", "north", "north", "east"), cycle("1", "1", None)
    drifts, notes = mix_of(first, with_metadata(PRODUCTION, camera=cameras, firmware=firmware, same=same))
    assert [drifts[key].drifted for key in ("camera", "firmware", "same")] == [True, True, False]
    assert (drifts["camera"].change, drifts["firmware"].change) == ("east 50% -> 25%", "new (no value)")
    assert notes == []


def test_ids_times_and_constants_are_not_categories() -> None:
    def recorded(prefix: str, count: int) -> Sample:
        return with_metadata(
            count, id=lambda index: f"{prefix}{index}", day=cycle(f"2026-11-{prefix}"),
            at=cycle(f"2026-11-{prefix}T10:00:00Z", f"2026-11-{prefix}T11:00:00Z"), site=cycle("dock"),
        )  # fmt: skip

    drifts, notes = mix_of(recorded("10", BASELINE), recorded("11", PRODUCTION))
    assert drifts == {}
    assert notes == ["Metadata: at, day, id: ids or times, not categories; not compared"]


def test_ids_instead_of_cameras_drift() -> None:
    first = with_metadata(BASELINE, camera=cycle("north", "east"))
    drifts, _ = mix_of(first, with_metadata(PRODUCTION, camera=lambda index: f"camera {index}"))
    assert drifts["camera"].drifted
    assert drifts["camera"].change.startswith("new camera 0, camera 1, camera 10, camera 100, camera 101 and 115 more;")


def test_keys_of_only_one_sample_are_noted() -> None:
    values = cycle("a", "b")
    drifts, notes = mix_of(with_metadata(BASELINE, folder=values), with_metadata(PRODUCTION, camera=values))
    assert drifts == {}
    assert notes == ["Metadata: only one of both has camera, folder; not compared"]


def test_only_most_frequent_keys_are_tested() -> None:
    keys = {f"k{index:02}": cycle("a", "b") for index in range(60)}
    drifts, notes = mix_of(with_metadata(BASELINE, **keys), with_metadata(PRODUCTION, **keys))
    assert len(drifts) == 50
    assert notes == ["Metadata: k50, k51, k52, k53, k54 and 5 more: too many keys; not compared"]


@pytest.mark.slow
@pytest.mark.parametrize(("values", "keys"), [(2, 1), (40, 1), (5, 6)])
def test_false_alarm_rate_of_all_keys_stays_below_the_level(values: int, keys: int) -> None:
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(200):
        first, second = (
            with_metadata(n, **{f"k{key}": cycle(*map(str, rng.zipf(1.5, n) % values)) for key in range(keys)})
            for n in (60, 40)
        )
        alarms += any(drift.p <= 0.05 for drift in mix_of(first, second, 199)[0].values())
    assert alarms / 200 <= 0.07


def test_names_of_clients_are_printable_and_short() -> None:
    change = describe_change({"a": 10}, {"a": 5, "\x1b[31m": 3, "x" * 100: 2})
    assert change == f"new '\\x1b[31m', {'x' * 60}..."
    assert describe_change({"a": 5, "": 5}, {"a": 10}) == "gone ''"
