"""A baseline and production held against each other: every test, and one verdict."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.drift.correction import benjamini_hochberg, holm, population_stability
from app.drift.permutation import PERMUTATIONS, chi_square, maximum_mean_discrepancy
from app.drift.result import Comparison, LabelShare, NumberDrift, Outlier, SliceDrift, Tested
from app.drift.sample import LEAST_IMAGES, DriftError, Sample
from app.drift.similarity import Neighbourhood, tail_test
from app.drift.space import Space
from app.drift.two_sample import cramer_von_mises, kolmogorov_smirnov

__all__ = ("ALPHA", "compared")

ALPHA = 0.01
"""The chance of a verdict of drift where there is none."""

_SEED = 0
_SLICE_PERMUTATIONS = 2000
_MOST_SLICES = 200
_OUTLIERS = 12


def compared(
    baseline: Sample,
    production: Sample,
    *,
    alpha: float = ALPHA,
    slices: Sequence[str] = (),
    neighbourhood: Neighbourhood | None = None,
) -> Comparison:
    """Hold production against a baseline.

    Every test gets a p-value that is right by itself: a test of many numbers is corrected for their count. Holm's
    correction of these makes the verdict, so that its chance of a false alarm is at most `alpha` however many tests
    there are. Images count as independent: frames of one film are not.

    Args:
        baseline: of the time when all was well.
        production: of now.
        alpha: that chance.
        slices: keys of metadata.
        neighbourhood: of the baseline's shared columns, when that is at hand.

    Raises:
        DriftError: when the two have nothing to compare, or too few images.
    """
    notes: list[str] = []
    baseline, production = _shared(baseline, production, notes)
    rng = np.random.default_rng(_SEED)
    near = neighbourhood or Neighbourhood(baseline.numbers, baseline.embeddings)
    distances = near.distances_of(production.numbers, production.embeddings)
    numbers = _numbers(baseline, production, alpha)
    found = [*_of_numbers(numbers), *_of_samples(baseline, production, rng, PERMUTATIONS, notes)]
    tail = tail_test(near.distances, distances)
    found.append(("similarity tail", "images unlike any of the baseline", tail[1], ""))
    sliced = _corrected([each for key in slices for each in _slices(key, baseline, production, rng, notes)], alpha)
    if tested := [each for each in sliced if each.q is not None]:
        least = min(tested, key=_q)
        found.append(("slices", "metadata: " + ", ".join(slices), _q(least), f"{least.key} = {least.value}"))
    adjusted = holm([p for _, _, p, _ in found])
    tests = [
        Tested(name=name, about=about, p=p, adjusted=q, drifted=q <= alpha, where=where)
        for (name, about, p, where), q in zip(found, adjusted, strict=True)
    ]
    similarity = near.similarity(distances)
    strangest: list[int] = np.argsort(similarity, kind="stable")[:_OUTLIERS].tolist()
    return Comparison(
        drifted=any(each.drifted for each in tests),
        alpha=alpha,
        baseline=len(baseline),
        production=len(production),
        tests=tests,
        numbers=numbers,
        labels=_label_shares(baseline, production),
        slices=sliced,
        baseline_similarity=float(near.similarity(near.distances).mean()),
        production_similarity=float(similarity.mean()),
        outliers=[Outlier(id=production.ids[row], similarity=float(similarity[row])) for row in strangest],
        notes=notes,
    )


_Found = tuple[str, str, float, str]


def _shared(baseline: Sample, production: Sample, notes: list[str]) -> tuple[Sample, Sample]:
    """Both with the same columns."""
    for each, what in ((baseline, "the baseline"), (production, "production")):
        if len(each) < LEAST_IMAGES:
            raise DriftError(f"Expected {LEAST_IMAGES} images at least to measure drift, got {len(each)} in {what}")
    if baseline.task_type and production.task_type and baseline.task_type != production.task_type:
        raise DriftError(
            f"The baseline is of {baseline.task_type}, production of {production.task_type}: compare one task"
        )
    features = [each for each in baseline.features if each in production.features]
    if not features:
        raise DriftError(
            "The baseline and production have no number in common: one has no pixels, the other no answers"
        )
    if left := [each for each in (*baseline.features, *production.features) if each not in features]:
        notes.append(f"Only one of both has {', '.join(dict.fromkeys(left))}; not compared")
    lengths = baseline.embeddings.shape[1], production.embeddings.shape[1]
    if all(lengths) and lengths[0] != lengths[1]:
        raise DriftError(
            f"The baseline has embeddings of {lengths[0]} numbers, production of {lengths[1]}: use one embedder"
        )
    if any(lengths) and not all(lengths):
        notes.append("Only one of both has embeddings; not compared")
    labels = sorted({*baseline.labels, *production.labels})
    return (_columns(baseline, features, all(lengths), labels), _columns(production, features, all(lengths), labels))


def _columns(sample: Sample, features: Sequence[str], embedded: bool, labels: Sequence[str]) -> Sample:
    counts = np.zeros((len(sample), len(labels)), np.int64)
    if sample.labels:
        counts[:, [labels.index(each) for each in sample.labels]] = sample.counts
    return msgspec.structs.replace(
        sample,
        features=features,
        numbers=sample.numbers[:, [list(sample.features).index(each) for each in features]],
        embeddings=sample.embeddings if embedded else sample.embeddings[:, :0],
        labels=labels,
        counts=counts,
    )


def _numbers(baseline: Sample, production: Sample, alpha: float) -> list[NumberDrift]:
    count = len(baseline.features)
    return [
        _number(name, baseline.numbers[:, column], production.numbers[:, column], alpha / count)
        for column, name in enumerate(baseline.features)
    ]


def _number(name: str, mine: NDArray[np.float64], other: NDArray[np.float64], level: float) -> NumberDrift:
    distance, distance_p = kolmogorov_smirnov(mine, other)
    statistic, statistic_p = cramer_von_mises(mine, other)
    tails = min(1.0, 2 * min(tail_test(mine, other)[1], tail_test(-mine, -other)[1]))
    psi = population_stability(mine, other)
    return NumberDrift(
        feature=name,
        baseline_mean=float(mine.mean()),
        production_mean=float(other.mean()),
        kolmogorov_smirnov=distance,
        kolmogorov_smirnov_p=distance_p,
        cramer_von_mises=statistic,
        cramer_von_mises_p=statistic_p,
        tails_p=tails,
        psi=psi,
        psi_says="stable" if psi < 0.1 else "moderate shift" if psi < 0.25 else "large shift",
        drifted=min(distance_p, statistic_p, tails) <= level / 3,
    )


def _of_numbers(numbers: Sequence[NumberDrift]) -> list[_Found]:
    """The three tests of each number, corrected for how many numbers there are."""
    return [
        _least("Kolmogorov-Smirnov", "each number", [(each.kolmogorov_smirnov_p, each.feature) for each in numbers]),
        _least("Cramér-von Mises", "each number", [(each.cramer_von_mises_p, each.feature) for each in numbers]),
        _least("tails", "few images far out in a number", [(each.tails_p, each.feature) for each in numbers]),
    ]


def _least(name: str, about: str, found: Sequence[tuple[float, str]]) -> _Found:
    p, where = min(found)
    return name, about, min(1.0, p * len(found)), where


def _of_samples(
    baseline: Sample, production: Sample, rng: np.random.Generator, permutations: int, notes: list[str] | None
) -> list[_Found]:
    """The tests that look at all numbers at once. The space is made of both samples, which keeps permutations exact."""
    count = len(baseline)
    space = Space(
        np.concatenate([baseline.numbers, production.numbers]),
        np.concatenate([baseline.embeddings, production.embeddings]),
    )
    found: list[_Found] = []
    spaces = [("numbers", space.numbers(baseline.numbers), space.numbers(production.numbers))]
    if baseline.embeddings.shape[1]:
        spaces.append(("embeddings", space.embeddings(baseline.embeddings), space.embeddings(production.embeddings)))
    for what, mine, other in spaces:
        p = maximum_mean_discrepancy(mine, other, rng, permutations)[1]
        found.append((f"MMD of {what}", "all of them together", p, ""))
    if baseline.task_type and production.task_type:
        seen = np.concatenate([baseline.counts, production.counts])
        if np.count_nonzero(seen.sum(axis=0)) > 1:
            p = chi_square(seen[:count], seen[count:], rng, permutations)[1]
            found.append(("chi-square", "labels", p, ""))
        elif notes is not None:
            notes.append("Labels: fewer than two were found; not compared")
    return found


def _slices(
    key: str, baseline: Sample, production: Sample, rng: np.random.Generator, notes: list[str]
) -> list[SliceDrift]:
    values = sorted({each[key] for sample in (baseline, production) for each in sample.metadata if key in each})
    if not values:
        notes.append(f"Slices: no image has {key!r} in its metadata")
    if len(values) > _MOST_SLICES:
        raise DriftError(f"Expected at most {_MOST_SLICES} values of {key!r} to slice by, got {len(values)}")
    found: list[SliceDrift] = []
    for value in values:
        mine, other = baseline.where(key, value), production.where(key, value)
        p = None
        if min(len(mine), len(other)) >= LEAST_IMAGES:
            p = _slice_p(baseline.rows(mine), production.rows(other), rng)
        found.append(SliceDrift(key=key, value=value, baseline=len(mine), production=len(other), p=p))
    return found


def _slice_p(baseline: Sample, production: Sample, rng: np.random.Generator) -> float:
    numbers = _numbers(baseline, production, ALPHA)
    found = [*_of_numbers(numbers), *_of_samples(baseline, production, rng, _SLICE_PERMUTATIONS, None)]
    return min(holm([p for _, _, p, _ in found]))


def _corrected(found: Sequence[SliceDrift], alpha: float) -> list[SliceDrift]:
    """The slices of all keys, corrected together."""
    corrected = iter(benjamini_hochberg([each.p for each in found if each.p is not None]))
    return [
        each if each.p is None else msgspec.structs.replace(each, q=(q := next(corrected)), drifted=q <= alpha)
        for each in found
    ]


def _q(found: SliceDrift) -> float:
    return 1.0 if found.q is None else found.q


def _label_shares(baseline: Sample, production: Sample) -> list[LabelShare]:
    totals = [each.counts.sum(axis=0) for each in (baseline, production)]
    shares = [each / max(1, each.sum()) for each in totals]
    return [
        LabelShare(
            label=label, baseline=float(shares[0][column]), production=float(shares[1][column]),
            known=bool(totals[0][column]),
        )
        for column, label in enumerate(baseline.labels)
    ]  # fmt: skip
