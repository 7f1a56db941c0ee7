"""The verdict, and what is refused."""

import msgspec
import numpy as np
import pytest

from app.drift.comparison import compared
from app.drift.sample import OTHER_LABELS, DriftError, Sample, sample_of
from tests.support.drift_samples import observations, sample, with_cameras


def test_the_same_is_no_drift_and_the_moved_is() -> None:
    baseline = sample(120, judged=True)
    assert not compared(baseline, sample(100, 1, judged=True)).drifted
    found = compared(baseline, sample(100, 1, shift=1, judged=True))
    assert found.drifted
    assert {each.name for each in found.tests if each.drifted} >= {
        "Kolmogorov-Smirnov", "Cramér-von Mises", "MMD of numbers", "MMD of embeddings", "similarity tail",
    }  # fmt: skip
    assert found.production_similarity < found.baseline_similarity


def test_a_comparison_says_the_same_again() -> None:
    pair = sample(60), sample(60, 1)
    assert msgspec.json.encode(compared(*pair)) == msgspec.json.encode(compared(*pair))


def test_only_the_slice_that_moved_is_named() -> None:
    production = sample(200, 1)
    south = production.where("camera", "south")
    production.numbers[south, 0] += 3
    found = compared(sample(200), production, slices=["camera", "weather"])
    assert {each.value: each.drifted for each in found.slices} == {"north": False, "south": True}
    assert found.drifted
    assert "Slices: no image has 'weather' in its metadata" in found.notes


def test_slices_of_few_images_are_told_and_not_judged() -> None:
    cameras = ("north",) * 30 + ("rare",)
    found = compared(with_cameras(sample(200), cameras), with_cameras(sample(200, 1), cameras), slices=["camera"])
    rare = next(each for each in found.slices if each.value == "rare")
    assert (rare.p, rare.q, rare.drifted) == (None, None, False)


def test_the_strangest_images_come_first() -> None:
    production = sample(100, 1)
    production.numbers[7] += 20
    production.numbers[9] += 10
    found = compared(sample(100), production)
    assert [each.id for each in found.outliers[:2]] == ["7", "9"]


def test_new_labels_are_named_and_count() -> None:
    production = sample(100, 1, judged=True)
    production = msgspec.structs.replace(production, labels=["cat", "mouse"])
    found = compared(sample(100, judged=True), production)
    assert {each.label: each.known for each in found.labels} == {"cat": True, "dog": True, "mouse": False}
    assert next(each for each in found.tests if each.name == "chi-square").drifted


def test_one_class_or_nothing_found_is_told_and_no_drift() -> None:
    def one(seed: int) -> Sample:
        return msgspec.structs.replace(
            sample(50, seed, judged=True), labels=["cat"], counts=np.full((50, 1), 2, np.int64)
        )

    def none(seed: int) -> Sample:
        return msgspec.structs.replace(sample(50, seed, judged=True), labels=[], counts=np.zeros((50, 0), np.int64))

    for make in (one, none):
        found = compared(make(0), make(1))
        assert not found.drifted
        assert "Labels: fewer than two were found; not compared" in found.notes


def test_what_only_one_has_is_left_out_and_told() -> None:
    found = compared(sample(50, judged=True), sample(50, 1, embedded=False))
    assert not found.drifted
    assert found.notes == [
        "Only one of both has findings, best score, mean score; not compared",
        "Only one of both has embeddings; not compared",
    ]


@pytest.mark.parametrize(
    ("production", "said"),
    [
        (sample(40).rows(np.arange(10)), "Expected 30 images at least to measure drift, got 10 in production"),
        (
            sample(40, judged=True, task="IMAGE_CLASSIFICATION"),
            "The baseline is of OBJECT_DETECTION, production of IMAGE_CLASSIFICATION: compare one task",
        ),
        (
            msgspec.structs.replace(sample(40), embeddings=np.zeros((40, 7), np.float32)),
            "The baseline has embeddings of 24 numbers, production of 7: use one embedder",
        ),
        (
            msgspec.structs.replace(sample(40), features=["other"], numbers=np.zeros((40, 1))),
            "The baseline and production have no number in common",
        ),
    ],
)
def test_what_cannot_be_compared_is_a_sentence(production: Sample, said: str) -> None:
    with pytest.raises(DriftError, match=said):
        compared(sample(40, judged=True), production)


def test_too_many_slices_are_refused() -> None:
    production = with_cameras(sample(201), tuple(map(str, range(201))))
    with pytest.raises(DriftError, match="at most 200 values of 'camera' to slice by, got 203"):
        compared(sample(40), production, slices=["camera"])


def test_of_the_same_id_the_first_counts() -> None:
    once = observations(40)
    twice = sample_of([*once, *observations(40, 1)])
    assert len(twice) == 40
    assert (twice.numbers == sample_of(once).numbers).all()


def test_images_without_pixels_are_left_out_where_others_have_theirs() -> None:
    some = [msgspec.structs.replace(each, image=None, embedding=None) for each in observations(5, prefix="no ")]
    assert len(sample_of([*some, *observations(40)])) == 40


def test_answers_alone_will_do() -> None:
    blind = [
        msgspec.structs.replace(each, image=None, embedding=None) for each in observations(40, judged=True)
    ]  # fmt: skip
    assert sample_of(blind, "OBJECT_DETECTION").features == ("findings", "best score", "mean score")
    nothing = [msgspec.structs.replace(each, findings=None) for each in blind]
    with pytest.raises(DriftError, match="neither pixels nor answers"):
        sample_of(nothing)


def test_numbers_that_are_none_are_refused_by_the_images_name() -> None:
    bad = observations(40)
    bad[3] = msgspec.structs.replace(bad[3], embedding=np.full(24, np.nan, np.float32))
    with pytest.raises(DriftError, match="The embedding of '3' in x are not finite"):
        sample_of(bad, what="x")
    bad[3] = msgspec.structs.replace(bad[3], embedding=np.zeros(5, np.float32))
    with pytest.raises(DriftError, match="Expected embeddings of one length in x, got 5, 24"):
        sample_of(bad, what="x")


def test_too_few_images_are_refused() -> None:
    with pytest.raises(DriftError, match="Expected 30 images at least to measure drift, got 0 in x"):
        sample_of([], what="x")


def test_labels_that_senders_make_up_are_counted_together() -> None:
    many = [
        msgspec.structs.replace(each, labels={f"{place} {n}": 1 for n in range(200)} | {"cat": 3})
        for place, each in enumerate(observations(40, judged=True))
    ]
    found = sample_of(many, "OBJECT_DETECTION")
    assert len(found.labels) == 5001
    assert found.labels[-1] == OTHER_LABELS
    assert found.counts.sum() == 40 * 203
    assert found.counts[:, list(found.labels).index("cat")].tolist() == [3] * 40
    tested = compared(found, found).tests
    assert next(each for each in tested if each.name == "chi-square").p == 1


def test_labels_that_moved_in_one_slice_are_found_whatever_the_count_of_tests() -> None:
    """Nothing but a permutation test sees it, and a thousand permutations would not reach the level."""
    production = sample(300, 1, judged=True)
    south = production.where("camera", "south")
    production.counts[south] = production.counts[south].sum(axis=1, keepdims=True) * np.array([1, 0])
    found = compared(sample(300, judged=True), production, slices=["camera"])
    assert {each.value: each.drifted for each in found.slices} == {"north": False, "south": True}
    assert next(each for each in found.tests if each.name == "slices").drifted
