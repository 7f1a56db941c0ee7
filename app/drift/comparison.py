"""Compare a baseline with production: all tests, and one verdict."""

import math
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.drift.clusters import cluster_images, standardize_within_clusters
from app.drift.correction import benjamini_hochberg, holm, population_stability
from app.drift.feature_space import FeatureSpace
from app.drift.permutation import chi_square, maximum_mean_discrepancy, tail_excess
from app.drift.result import DriftComparison, DriftTestResult, LabelShare, NumberDrift, Outlier, SliceDrift
from app.drift.sample import MIN_IMAGES, DriftError, Sample
from app.drift.similarity import Neighbourhood, comparable_distances, tail_test
from app.drift.two_sample import cramer_von_mises, kolmogorov_smirnov

__all__ = ("ALPHA", "compare")

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


def compare(
    baseline: Sample,
    production: Sample,
    *,
    alpha: float = ALPHA,
    slices: Sequence[str] = (),
    neighbourhood: Neighbourhood | None = None,
) -> DriftComparison:
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
    baseline, production = _common_columns(baseline, production, notes)
    rng = np.random.default_rng(_SEED)
    baseline_neighbourhood = neighbourhood or Neighbourhood(baseline.numbers, baseline.embeddings)
    distances = baseline_neighbourhood.distances_of(production.numbers, production.embeddings)
    numbers = _compare_numbers(baseline, production, alpha)
    space = _fit_space(baseline, production)
    results = [*_number_tests(numbers), *_sample_tests(baseline, production, space, rng, _TESTS / alpha, notes)]
    tail = tail_test(
        *comparable_distances(
            space, (baseline.numbers, baseline.embeddings), (production.numbers, production.embeddings), rng
        )
    )
    results.append(("similarity tail", "images unlike any of the baseline", tail[1], ""))
    slice_drifts = _test_slices(slices, baseline, production, alpha, rng, notes)
    if tested_slices := [slice_drift for slice_drift in slice_drifts if slice_drift.q is not None]:
        worst_slice = min(tested_slices, key=_q)
        results.append(
            ("slices", "metadata: " + ", ".join(slices), _q(worst_slice), f"{worst_slice.key} = {worst_slice.value}")
        )
    adjusted = holm([p for _, _, p, _ in results])
    tests = [
        DriftTestResult(name=name, about=subject, p=p, adjusted=q, drifted=q <= alpha, where=where)
        for (name, subject, p, where), q in zip(results, adjusted, strict=True)
    ]
    similarity = baseline_neighbourhood.similarity(distances)
    least_similar: list[int] = np.argsort(similarity, kind="stable")[:_OUTLIERS].tolist()
    return DriftComparison(
        drifted=any(test.drifted for test in tests),
        alpha=alpha,
        baseline=len(baseline),
        production=len(production),
        tests=tests,
        numbers=numbers,
        labels=_label_shares(baseline, production),
        slices=slice_drifts,
        baseline_similarity=float(baseline_neighbourhood.similarity(baseline_neighbourhood.distances).mean()),
        production_similarity=float(similarity.mean()),
        outliers=[Outlier(id=production.ids[row], similarity=float(similarity[row])) for row in least_similar],
        notes=notes,
    )


_TestRow = tuple[str, str, float, str]


def _common_columns(baseline: Sample, production: Sample, notes: list[str]) -> tuple[Sample, Sample]:
    """Reduce both samples to their common columns."""
    for sample, sample_name in ((baseline, "the baseline"), (production, "production")):
        if len(sample) < MIN_IMAGES:
            raise DriftError(
                f"Expected {MIN_IMAGES} images at least to measure drift, got {len(sample)} in {sample_name}"
            )
    if baseline.task_type and production.task_type and baseline.task_type != production.task_type:
        raise DriftError(
            f"The baseline is of {baseline.task_type}, production of {production.task_type}: compare one task"
        )
    features = [feature for feature in baseline.features if feature in production.features]
    if not features:
        raise DriftError(
            "The baseline and production have no number in common: one has no pixels, the other no answers"
        )
    if unshared := [feature for feature in (*baseline.features, *production.features) if feature not in features]:
        notes.append(f"Only one of both has {', '.join(dict.fromkeys(unshared))}; not compared")
    lengths = baseline.embeddings.shape[1], production.embeddings.shape[1]
    if all(lengths) and lengths[0] != lengths[1]:
        raise DriftError(
            f"The baseline has embeddings of {lengths[0]} numbers, production of {lengths[1]}: use one embedder"
        )
    if any(lengths) and not all(lengths):
        notes.append("Only one of both has embeddings; not compared")
    labels = sorted({*baseline.labels, *production.labels})
    return (
        _select_columns(baseline, features, all(lengths), labels),
        _select_columns(production, features, all(lengths), labels),
    )


def _select_columns(sample: Sample, features: Sequence[str], embedded: bool, labels: Sequence[str]) -> Sample:
    counts = np.zeros((len(sample), len(labels)), np.int64)
    if sample.labels:
        columns = {label: column for column, label in enumerate(labels)}
        counts[:, [columns[label] for label in sample.labels]] = sample.counts
    return msgspec.structs.replace(
        sample,
        features=features,
        numbers=sample.numbers[:, [list(sample.features).index(feature) for feature in features]],
        embeddings=sample.embeddings if embedded else sample.embeddings[:, :0],
        labels=labels,
        counts=counts,
    )


def _compare_numbers(baseline: Sample, production: Sample, alpha: float) -> list[NumberDrift]:
    count = len(baseline.features)
    return [
        _compare_number(name, baseline.numbers[:, column], production.numbers[:, column], alpha / count)
        for column, name in enumerate(baseline.features)
    ]


def _compare_number(
    name: str, baseline_values: NDArray[np.float64], production_values: NDArray[np.float64], level: float
) -> NumberDrift:
    distance, distance_p = kolmogorov_smirnov(baseline_values, production_values)
    statistic, statistic_p = cramer_von_mises(baseline_values, production_values)
    tails = min(
        1.0,
        2 * min(tail_test(baseline_values, production_values)[1], tail_test(-baseline_values, -production_values)[1]),
    )
    psi = population_stability(baseline_values, production_values)
    return NumberDrift(
        feature=name,
        baseline_mean=float(baseline_values.mean()),
        production_mean=float(production_values.mean()),
        kolmogorov_smirnov=distance,
        kolmogorov_smirnov_p=distance_p,
        cramer_von_mises=statistic,
        cramer_von_mises_p=statistic_p,
        tails_p=tails,
        psi=psi,
        psi_says="stable" if psi < 0.1 else "moderate shift" if psi < 0.25 else "large shift",
        drifted=min(distance_p, statistic_p, tails) <= level / 3,
    )


def _number_tests(numbers: Sequence[NumberDrift]) -> list[_TestRow]:
    """Run two tests on each number, corrected for the count of numbers."""
    return [
        _smallest_p_value(
            "Kolmogorov-Smirnov", "each number", [(item.kolmogorov_smirnov_p, item.feature) for item in numbers]
        ),
        _smallest_p_value(
            "Cramér-von Mises", "each number", [(item.cramer_von_mises_p, item.feature) for item in numbers]
        ),
    ]


def _smallest_p_value(name: str, subject: str, p_values: Sequence[tuple[float, str]]) -> _TestRow:
    p, where = min(p_values)
    return name, subject, min(1.0, p * len(p_values)), where


def _fit_space(baseline: Sample, production: Sample) -> FeatureSpace:
    """Fit a space to both samples together, which keeps permutation tests exact."""
    return FeatureSpace(
        np.concatenate([baseline.numbers, production.numbers]),
        np.concatenate([baseline.embeddings, production.embeddings]),
    )


def _sample_tests(
    baseline: Sample,
    production: Sample,
    space: FeatureSpace,
    rng: np.random.Generator,
    max_permutations: float,
    notes: list[str] | None,
) -> list[_TestRow]:
    """Run the tests of all numbers together, with up to `max_permutations` permutations."""
    count, permutations = len(baseline), min(_MAX_PERMUTATIONS, math.ceil(max_permutations))
    results = [_outlier_test(baseline, production, space, rng, permutations)]
    spaces = [("numbers", space.numbers(baseline.numbers), space.numbers(production.numbers))]
    if baseline.embeddings.shape[1]:
        spaces.append(("embeddings", space.embeddings(baseline.embeddings), space.embeddings(production.embeddings)))
    for name, baseline_rows, production_rows in spaces:
        p = maximum_mean_discrepancy(baseline_rows, production_rows, rng, permutations)[1]
        results.append((f"MMD of {name}", "all of them together", p, ""))
    if baseline.task_type and production.task_type:
        label_counts = _most_common_labels(np.concatenate([baseline.counts, production.counts]))
        if np.count_nonzero(label_counts.sum(axis=0)) > 1:
            p = chi_square(label_counts[:count], label_counts[count:], rng, permutations)[1]
            results.append(("chi-square", "labels", p, ""))
        elif notes is not None:
            notes.append("Labels: fewer than two were found; not compared")
    return results


def _most_common_labels(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the columns of the most common labels, and the sum of the others as one column."""
    if counts.shape[1] <= _MAX_LABELS:
        return counts
    order = np.argsort(-counts.sum(axis=0), kind="stable")
    others = counts[:, order[_MAX_LABELS:]].sum(axis=1, keepdims=True)
    return np.concatenate([counts[:, order[:_MAX_LABELS]], others], axis=1)


def _outlier_test(
    baseline: Sample, production: Sample, space: FeatureSpace, rng: np.random.Generator, permutations: int
) -> _TestRow:
    """Test for a few outliers among all images or within their cluster: dark images may be usual for one camera."""
    numbers = np.concatenate([baseline.numbers, production.numbers])
    cluster = cluster_images(
        space.main_components(np.concatenate([baseline.embeddings, production.embeddings]), _COMPONENTS)
    )
    columns = (
        np.concatenate([numbers, standardize_within_clusters(numbers, cluster)], axis=1) if cluster.any() else numbers
    )
    column, p = tail_excess(columns, len(baseline), rng, permutations)
    return "tails", "few images far out in a number", p, baseline.features[column % len(baseline.features)]


def _test_slices(
    keys: Sequence[str], baseline: Sample, production: Sample, alpha: float, rng: np.random.Generator, notes: list[str]
) -> list[SliceDrift]:
    """Test the slices of all keys, and correct their p-values together."""
    slices = [slice_drift for key in keys for slice_drift in _list_slices(key, baseline, production, notes)]
    testable = [drift for drift in slices if min(drift.baseline, drift.production) >= MIN_IMAGES]
    max_permutations = _TESTS * _SLICE_TESTS * len(testable) / alpha
    values = [_slice_p(drift, baseline, production, rng, max_permutations) for drift in testable]
    corrected = dict(zip(map(id, testable), zip(values, benjamini_hochberg(values), strict=True), strict=True))
    return [
        drift if id(drift) not in corrected else _with_result(drift, *corrected[id(drift)], alpha) for drift in slices
    ]  # fmt: skip


def _with_result(slice_drift: SliceDrift, p: float, q: float, alpha: float) -> SliceDrift:
    return msgspec.structs.replace(slice_drift, p=p, q=q, drifted=q <= alpha)


def _list_slices(key: str, baseline: Sample, production: Sample, notes: list[str]) -> list[SliceDrift]:
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


def _slice_p(
    slice_drift: SliceDrift, baseline: Sample, production: Sample, rng: np.random.Generator, max_permutations: float
) -> float:
    baseline_rows, production_rows = (
        sample.rows(sample.where(slice_drift.key, slice_drift.value)) for sample in (baseline, production)
    )
    results = _number_tests(_compare_numbers(baseline_rows, production_rows, ALPHA))
    if min(p for _, _, p, _ in results) <= 1 / max_permutations:
        max_permutations = 0  # more permutations cannot give a smaller p-value
    results += _sample_tests(
        baseline_rows, production_rows, _fit_space(baseline_rows, production_rows), rng, max_permutations, None
    )
    return min(holm([p for _, _, p, _ in results]))


def _q(slice_drift: SliceDrift) -> float:
    return 1.0 if slice_drift.q is None else slice_drift.q


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
