"""All tests of two samples of images, and of slices: the images with one value in their metadata."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.drift.feature_space import FeatureSpace, cluster_images, standardize_within_clusters
from app.drift.hypothesis_tests import (
    chi_square,
    cramer_von_mises,
    holm,
    import_scipy,
    kolmogorov_smirnov,
    maximum_mean_discrepancy,
    population_stability,
    tail_excess,
    tail_test,
)
from app.drift.mix import describe_change
from app.drift.result import NumberDrift, SliceDrift
from app.drift.sample import MIN_IMAGES, DriftError, Sample

_COMPONENTS = 8
_MAX_LABELS = 1000
_MAX_SLICES = 200
_SLICE_TESTS = 6
"""Maximum number of tests of a slice."""


class PValue(NamedTuple):
    """The name of a test, the tested values, the p-value, and what differs most."""

    name: str
    about: str
    p: float
    where: str = ""


def compare_numbers(baseline: Sample, production: Sample, alpha: float) -> list[NumberDrift]:
    """Test each number by itself, at the level `alpha` for all numbers together."""
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
    tails = min(tail_test(baseline_values, production_values), tail_test(-baseline_values, -production_values))
    psi = population_stability(baseline_values, production_values)
    return NumberDrift(
        feature=name,
        baseline_mean=float(baseline_values.mean()),
        production_mean=float(production_values.mean()),
        kolmogorov_smirnov=distance,
        kolmogorov_smirnov_p=distance_p,
        cramer_von_mises=statistic,
        cramer_von_mises_p=statistic_p,
        tails_p=min(1.0, 2 * tails),
        psi=psi,
        psi_says="stable" if psi < 0.1 else "moderate shift" if psi < 0.25 else "large shift",
        drifted=min(distance_p, statistic_p, 2 * tails) <= level / 3,
    )


def number_tests(numbers: Sequence[NumberDrift]) -> list[PValue]:
    """Return the tests of single numbers, corrected for the count of numbers."""
    smallest = [
        ("Kolmogorov-Smirnov", *min((number.kolmogorov_smirnov_p, number.feature) for number in numbers)),
        ("Cramér-von Mises", *min((number.cramer_von_mises_p, number.feature) for number in numbers)),
    ]
    return [PValue(name, "each number", min(1.0, p * len(numbers)), feature) for name, p, feature in smallest]


def fit_space(baseline: Sample, production: Sample) -> FeatureSpace:
    """Fit a space to both samples together, which keeps permutation tests exact."""
    return FeatureSpace(
        np.concatenate([baseline.numbers, production.numbers]),
        np.concatenate([baseline.embeddings, production.embeddings]),
    )


def sample_tests(
    baseline: Sample,
    production: Sample,
    space: FeatureSpace,
    rng: np.random.Generator,
    max_permutations: float,
    notes: list[str] | None,
) -> list[PValue]:
    """Run the tests of all numbers together, with up to `max_permutations` permutations."""
    results = [_outlier_test(baseline, production, space, rng, max_permutations)]
    spaces = [("numbers", space.numbers(baseline.numbers), space.numbers(production.numbers))]
    if baseline.embeddings.shape[1]:
        spaces.append(("embeddings", space.embeddings(baseline.embeddings), space.embeddings(production.embeddings)))
    for name, baseline_rows, production_rows in spaces:
        p = maximum_mean_discrepancy(baseline_rows, production_rows, rng, max_permutations)
        results.append(PValue(f"MMD of {name}", "all of them together", p))
    if baseline.task_type and production.task_type:
        label_counts = _most_common_labels(np.concatenate([baseline.counts, production.counts]))
        if np.count_nonzero(label_counts.sum(axis=0)) > 1:
            p = chi_square(label_counts[: len(baseline)], label_counts[len(baseline) :], rng, max_permutations)
            results.append(PValue("chi-square", "labels", p, describe_change(_labels(baseline), _labels(production))))
        elif notes is not None:
            notes.append("Labels: fewer than two were found; not compared")
    return results


def compare_slices(
    keys: Sequence[str],
    baseline: Sample,
    production: Sample,
    alpha: float,
    max_permutations: float,
    rng: np.random.Generator,
    notes: list[str],
) -> list[SliceDrift]:
    """Test the slices of all keys, and correct their p-values together.

    Raises:
        DriftError: when a key has too many values.
    """
    slices = [slice_drift for key in keys for slice_drift in _list_slices(key, baseline, production, notes)]
    testable = [drift for drift in slices if min(drift.baseline, drift.production) >= MIN_IMAGES]
    if not testable:
        return slices
    max_permutations *= _SLICE_TESTS * len(testable)
    values = [_slice_p(drift, baseline, production, rng, max_permutations) for drift in testable]
    adjusted: list[float] = import_scipy().false_discovery_control(values).tolist()
    tested = {
        (drift.key, drift.value): msgspec.structs.replace(drift, p=p, q=q, drifted=q <= alpha)
        for drift, p, q in zip(testable, values, adjusted, strict=True)
    }
    return [tested.get((drift.key, drift.value), drift) for drift in slices]


def _labels(sample: Sample) -> Mapping[str, int]:
    totals: list[int] = sample.counts.sum(axis=0).tolist()
    return {label: total for label, total in zip(sample.labels, totals, strict=True) if total}


def _most_common_labels(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the columns of the most common labels, and the sum of the others as one column."""
    if counts.shape[1] <= _MAX_LABELS:
        return counts
    order = np.argsort(-counts.sum(axis=0), kind="stable")
    others = counts[:, order[_MAX_LABELS:]].sum(axis=1, keepdims=True)
    return np.concatenate([counts[:, order[:_MAX_LABELS]], others], axis=1)


def _outlier_test(
    baseline: Sample, production: Sample, space: FeatureSpace, rng: np.random.Generator, max_permutations: float
) -> PValue:
    """Test for a few outliers among all images or within their cluster: dark images may be usual for one camera."""
    numbers = np.concatenate([baseline.numbers, production.numbers])
    cluster = cluster_images(
        space.main_components(np.concatenate([baseline.embeddings, production.embeddings]), _COMPONENTS)
    )
    if cluster.any():
        numbers = np.concatenate([numbers, standardize_within_clusters(numbers, cluster)], axis=1)
    column, p = tail_excess(numbers, len(baseline), rng, max_permutations)
    return PValue("tails", "few images far out in a number", p, baseline.features[column % len(baseline.features)])


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
    first, second = (sample.rows(sample.where(slice_drift.key, slice_drift.value)) for sample in (baseline, production))
    results = number_tests(compare_numbers(first, second, 1.0))
    if min(row.p for row in results) <= 1 / max_permutations:
        max_permutations = 0  # more permutations cannot give a smaller p-value
    results += sample_tests(first, second, fit_space(first, second), rng, max_permutations, None)
    return min(holm([row.p for row in results]))
