"""Compare a baseline with production: all tests, and one verdict."""

import math
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.drift.correction import benjamini_hochberg, holm, population_stability
from app.drift.kinds import kinds, within_kinds
from app.drift.permutation import chi_square, maximum_mean_discrepancy, tails
from app.drift.result import Comparison, LabelShare, NumberDrift, Outlier, SliceDrift, Tested
from app.drift.sample import LEAST_IMAGES, DriftError, Sample
from app.drift.similarity import Neighbourhood, distances_alike, tail_test
from app.drift.space import Space
from app.drift.two_sample import cramer_von_mises, kolmogorov_smirnov

__all__ = ("ALPHA", "compared")

ALPHA = 0.01
"""The probability of a false verdict of drift."""

_SEED = 0
_TESTS = 8
"""Maximum number of tests in the verdict."""

_SLICE_TESTS = 6
_MAX_PERMUTATIONS = 20_000
_COMPONENTS = 8
_MAX_SLICES = 200
_MAX_LABELS = 1000
_OUTLIERS = 12


def compared(
    baseline: Sample,
    production: Sample,
    *,
    alpha: float = ALPHA,
    slices: Sequence[str] = (),
    neighbourhood: Neighbourhood | None = None,
) -> Comparison:
    """Compare production with a baseline.

    Every test has a valid p-value: a test of several numbers is corrected for their count. Holm's correction of these
    gives the verdict, so that its false alarm probability is at most `alpha` for any number of tests. The tests assume
    independent images; frames of one video are not independent.

    Args:
        baseline: the reference images.
        production: the current images.
        alpha: the maximum probability of a false alarm.
        slices: keys of metadata.
        neighbourhood: a precomputed neighbourhood of the baseline's shared columns, if there is one.

    Raises:
        DriftError: when the samples have no common columns, or too few images.
    """
    notes: list[str] = []
    baseline, production = _shared(baseline, production, notes)
    rng = np.random.default_rng(_SEED)
    near = neighbourhood or Neighbourhood(baseline.numbers, baseline.embeddings)
    distances = near.distances_of(production.numbers, production.embeddings)
    numbers = _numbers(baseline, production, alpha)
    space = _space(baseline, production)
    found = [*_of_numbers(numbers), *_of_samples(baseline, production, space, rng, _TESTS / alpha, notes)]
    tail = tail_test(
        *distances_alike(
            space, (baseline.numbers, baseline.embeddings), (production.numbers, production.embeddings), rng
        )
    )
    found.append(("similarity tail", "images unlike any of the baseline", tail[1], ""))
    sliced = _sliced(slices, baseline, production, alpha, rng, notes)
    if tested := [part for part in sliced if part.q is not None]:
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
        drifted=any(test.drifted for test in tests),
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
    """Reduce both samples to their common columns."""
    for sample, what in ((baseline, "the baseline"), (production, "production")):
        if len(sample) < LEAST_IMAGES:
            raise DriftError(f"Expected {LEAST_IMAGES} images at least to measure drift, got {len(sample)} in {what}")
    if baseline.task_type and production.task_type and baseline.task_type != production.task_type:
        raise DriftError(
            f"The baseline is of {baseline.task_type}, production of {production.task_type}: compare one task"
        )
    features = [feature for feature in baseline.features if feature in production.features]
    if not features:
        raise DriftError(
            "The baseline and production have no number in common: one has no pixels, the other no answers"
        )
    if left := [feature for feature in (*baseline.features, *production.features) if feature not in features]:
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
        places = {label: place for place, label in enumerate(labels)}
        counts[:, [places[label] for label in sample.labels]] = sample.counts
    return msgspec.structs.replace(
        sample,
        features=features,
        numbers=sample.numbers[:, [list(sample.features).index(feature) for feature in features]],
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
    """Run two tests on each number, corrected for the count of numbers."""
    return [
        _least("Kolmogorov-Smirnov", "each number", [(item.kolmogorov_smirnov_p, item.feature) for item in numbers]),
        _least("Cramér-von Mises", "each number", [(item.cramer_von_mises_p, item.feature) for item in numbers]),
    ]


def _least(name: str, about: str, found: Sequence[tuple[float, str]]) -> _Found:
    p, where = min(found)
    return name, about, min(1.0, p * len(found)), where


def _space(baseline: Sample, production: Sample) -> Space:
    """Fit a space to both samples together, which keeps permutation tests exact."""
    return Space(
        np.concatenate([baseline.numbers, production.numbers]),
        np.concatenate([baseline.embeddings, production.embeddings]),
    )


def _of_samples(
    baseline: Sample, production: Sample, space: Space, rng: np.random.Generator, most: float, notes: list[str] | None
) -> list[_Found]:
    """Run the tests of all numbers together, with up to `most` permutations."""
    count, permutations = len(baseline), min(_MAX_PERMUTATIONS, math.ceil(most))
    found = [_tails(baseline, production, space, rng, permutations)]
    spaces = [("numbers", space.numbers(baseline.numbers), space.numbers(production.numbers))]
    if baseline.embeddings.shape[1]:
        spaces.append(("embeddings", space.embeddings(baseline.embeddings), space.embeddings(production.embeddings)))
    for what, mine, other in spaces:
        p = maximum_mean_discrepancy(mine, other, rng, permutations)[1]
        found.append((f"MMD of {what}", "all of them together", p, ""))
    if baseline.task_type and production.task_type:
        seen = _common(np.concatenate([baseline.counts, production.counts]))
        if np.count_nonzero(seen.sum(axis=0)) > 1:
            p = chi_square(seen[:count], seen[count:], rng, permutations)[1]
            found.append(("chi-square", "labels", p, ""))
        elif notes is not None:
            notes.append("Labels: fewer than two were found; not compared")
    return found


def _common(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the columns of the most common labels, and the sum of the others as one column."""
    if counts.shape[1] <= _MAX_LABELS:
        return counts
    order = np.argsort(-counts.sum(axis=0), kind="stable")
    rest = counts[:, order[_MAX_LABELS:]].sum(axis=1, keepdims=True)
    return np.concatenate([counts[:, order[:_MAX_LABELS]], rest], axis=1)


def _tails(baseline: Sample, production: Sample, space: Space, rng: np.random.Generator, permutations: int) -> _Found:
    """Test for a few outliers among all images or within their cluster: dark images may be usual for one camera."""
    numbers = np.concatenate([baseline.numbers, production.numbers])
    kind = kinds(space.widest(np.concatenate([baseline.embeddings, production.embeddings]), _COMPONENTS))
    columns = np.concatenate([numbers, within_kinds(numbers, kind)], axis=1) if kind.any() else numbers
    column, p = tails(columns, len(baseline), rng, permutations)
    return "tails", "few images far out in a number", p, baseline.features[column % len(baseline.features)]


def _sliced(
    keys: Sequence[str], baseline: Sample, production: Sample, alpha: float, rng: np.random.Generator, notes: list[str]
) -> list[SliceDrift]:
    """Test the slices of all keys, and correct their p-values together."""
    found = [part for key in keys for part in _slices(key, baseline, production, notes)]
    tested_parts = [part for part in found if min(part.baseline, part.production) >= LEAST_IMAGES]
    most = _TESTS * _SLICE_TESTS * len(tested_parts) / alpha
    values = [_slice_p(part, baseline, production, rng, most) for part in tested_parts]
    corrected = dict(zip(map(id, tested_parts), zip(values, benjamini_hochberg(values), strict=True), strict=True))
    return [
        part if id(part) not in corrected else _with_result(part, *corrected[id(part)], alpha) for part in found
    ]  # fmt: skip


def _with_result(found: SliceDrift, p: float, q: float, alpha: float) -> SliceDrift:
    return msgspec.structs.replace(found, p=p, q=q, drifted=q <= alpha)


def _slices(key: str, baseline: Sample, production: Sample, notes: list[str]) -> list[SliceDrift]:
    """Return one untested slice for each value."""
    counted = [Counter(entry[key] for entry in sample.metadata if key in entry) for sample in (baseline, production)]
    values = sorted({*counted[0], *counted[1]})
    if not values:
        notes.append(f"Slices: no image has {key!r} in its metadata")
    if len(values) > _MAX_SLICES:
        raise DriftError(f"Expected at most {_MAX_SLICES} values of {key!r} to slice by, got {len(values)}")
    return [
        SliceDrift(key=key, value=value, baseline=counted[0][value], production=counted[1][value]) for value in values
    ]


def _slice_p(found: SliceDrift, baseline: Sample, production: Sample, rng: np.random.Generator, most: float) -> float:
    mine, other = (sample.rows(sample.where(found.key, found.value)) for sample in (baseline, production))
    tested = _of_numbers(_numbers(mine, other, ALPHA))
    if min(p for _, _, p, _ in tested) <= 1 / most:
        most = 0  # more permutations cannot give a smaller p-value
    tested += _of_samples(mine, other, _space(mine, other), rng, most, None)
    return min(holm([p for _, _, p, _ in tested]))


def _q(found: SliceDrift) -> float:
    return 1.0 if found.q is None else found.q


def _label_shares(baseline: Sample, production: Sample) -> list[LabelShare]:
    totals = [sample.counts.sum(axis=0) for sample in (baseline, production)]
    shares = [total / max(1, total.sum()) for total in totals]
    return [
        LabelShare(
            label=label, baseline=float(shares[0][column]), production=float(shares[1][column]),
            known=bool(totals[0][column]),
        )
        for column, label in enumerate(baseline.labels)
    ]  # fmt: skip
