"""A baseline and production held against each other: every test, and one verdict."""

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
"""The chance of a verdict of drift where there is none."""

_SEED = 0
_TESTS = 8
"""Of the verdict, at most."""

_SLICE_TESTS = 6
_MOST_PERMUTATIONS = 20_000
_COMPONENTS = 8
_MOST_SLICES = 200
_MOST_LABELS = 1000
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
    space = _space(baseline, production)
    found = [*_of_numbers(numbers), *_of_samples(baseline, production, space, rng, _TESTS / alpha, notes)]
    tail = tail_test(
        *distances_alike(
            space, (baseline.numbers, baseline.embeddings), (production.numbers, production.embeddings), rng
        )
    )
    found.append(("similarity tail", "images unlike any of the baseline", tail[1], ""))
    sliced = _sliced(slices, baseline, production, alpha, rng, notes)
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
        places = {label: place for place, label in enumerate(labels)}
        counts[:, [places[each] for each in sample.labels]] = sample.counts
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
    """Two tests of each number, corrected for how many numbers there are."""
    return [
        _least("Kolmogorov-Smirnov", "each number", [(each.kolmogorov_smirnov_p, each.feature) for each in numbers]),
        _least("Cramér-von Mises", "each number", [(each.cramer_von_mises_p, each.feature) for each in numbers]),
    ]


def _least(name: str, about: str, found: Sequence[tuple[float, str]]) -> _Found:
    p, where = min(found)
    return name, about, min(1.0, p * len(found)), where


def _space(baseline: Sample, production: Sample) -> Space:
    """Made of both samples, which keeps permutations exact."""
    return Space(
        np.concatenate([baseline.numbers, production.numbers]),
        np.concatenate([baseline.embeddings, production.embeddings]),
    )


def _of_samples(
    baseline: Sample, production: Sample, space: Space, rng: np.random.Generator, most: float, notes: list[str] | None
) -> list[_Found]:
    """The tests that look at all numbers at once, by `most` permutations where few would not tell."""
    count, permutations = len(baseline), min(_MOST_PERMUTATIONS, math.ceil(most))
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
    """The columns of the most common labels of both samples, and the others as one."""
    if counts.shape[1] <= _MOST_LABELS:
        return counts
    order = np.argsort(-counts.sum(axis=0), kind="stable")
    rest = counts[:, order[_MOST_LABELS:]].sum(axis=1, keepdims=True)
    return np.concatenate([counts[:, order[:_MOST_LABELS]], rest], axis=1)


def _tails(baseline: Sample, production: Sample, space: Space, rng: np.random.Generator, permutations: int) -> _Found:
    """A few images far out, of all images or of those of their kind: a camera's dark image is another's usual one."""
    numbers = np.concatenate([baseline.numbers, production.numbers])
    kind = kinds(space.widest(np.concatenate([baseline.embeddings, production.embeddings]), _COMPONENTS))
    columns = np.concatenate([numbers, within_kinds(numbers, kind)], axis=1) if kind.any() else numbers
    column, p = tails(columns, len(baseline), rng, permutations)
    return "tails", "few images far out in a number", p, baseline.features[column % len(baseline.features)]


def _sliced(
    keys: Sequence[str], baseline: Sample, production: Sample, alpha: float, rng: np.random.Generator, notes: list[str]
) -> list[SliceDrift]:
    """The slices of all keys, corrected together."""
    found = [each for key in keys for each in _slices(key, baseline, production, notes)]
    judged = [each for each in found if min(each.baseline, each.production) >= LEAST_IMAGES]
    most = _TESTS * _SLICE_TESTS * len(judged) / alpha
    values = [_slice_p(each, baseline, production, rng, most) for each in judged]
    corrected = dict(zip(map(id, judged), zip(values, benjamini_hochberg(values), strict=True), strict=True))
    return [
        each if id(each) not in corrected else _told(each, *corrected[id(each)], alpha) for each in found
    ]  # fmt: skip


def _told(found: SliceDrift, p: float, q: float, alpha: float) -> SliceDrift:
    return msgspec.structs.replace(found, p=p, q=q, drifted=q <= alpha)


def _slices(key: str, baseline: Sample, production: Sample, notes: list[str]) -> list[SliceDrift]:
    """One for each value, not judged yet."""
    counted = [Counter(each[key] for each in sample.metadata if key in each) for sample in (baseline, production)]
    values = sorted({*counted[0], *counted[1]})
    if not values:
        notes.append(f"Slices: no image has {key!r} in its metadata")
    if len(values) > _MOST_SLICES:
        raise DriftError(f"Expected at most {_MOST_SLICES} values of {key!r} to slice by, got {len(values)}")
    return [
        SliceDrift(key=key, value=value, baseline=counted[0][value], production=counted[1][value]) for value in values
    ]


def _slice_p(found: SliceDrift, baseline: Sample, production: Sample, rng: np.random.Generator, most: float) -> float:
    mine, other = (each.rows(each.where(found.key, found.value)) for each in (baseline, production))
    tested = _of_numbers(_numbers(mine, other, ALPHA))
    if min(p for _, _, p, _ in tested) <= 1 / most:
        most = 0  # no permutations could say more
    tested += _of_samples(mine, other, _space(mine, other), rng, most, None)
    return min(holm([p for _, _, p, _ in tested]))


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
