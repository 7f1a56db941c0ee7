"""All tests of two samples of images."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.plugins.drift.feature_space import (
    FeatureSpace,
    cluster_images,
    comparable_distances,
    standardize_within_clusters,
)
from app.plugins.drift.hypothesis_tests import (
    Numbers,
    category_excess,
    chi_square,
    kolmogorov_smirnov,
    maximum_mean_discrepancy,
    tail_excess,
    tail_test,
)
from app.plugins.drift.sample import Sample

_COMPONENTS = 8
_MAX_LABELS = 1000
NO_VALUE = "(no value)"
"""Stands for images that lack the key."""

_MIN_FREQUENT = 5
_MAX_VALUES = 200
_MAX_KEYS = 50
_MAX_NAMES = 5
_MAX_LENGTH = 60

_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ].*)?")


class NumberDrift(msgspec.Struct, frozen=True, kw_only=True):
    """One number of the images. Its p-values are uncorrected."""

    feature: str
    baseline_mean: float
    production_mean: float
    kolmogorov_smirnov: float
    kolmogorov_smirnov_p: float
    tails_p: float
    drifted: bool


class ValueCount(msgspec.Struct, frozen=True, kw_only=True):
    """The number of images with one value of a metadata key, or of predictions with one label."""

    value: str
    baseline: int
    production: int


class MixDrift(msgspec.Struct, frozen=True, kw_only=True):
    """How often each value of one metadata key occurs.

    `p` is corrected for the other keys; `drifted` says whether it is at most the level. `change` names the new and the
    vanished values, or else the one whose share has changed most. `values` are in the order of change.
    """

    key: str
    p: float
    drifted: bool
    change: str
    values: Sequence[ValueCount]


class DriftTestResult(msgspec.Struct, frozen=True):
    """One test of the verdict about some values.

    `p` is corrected for the count of its numbers, `adjusted` for the other tests too (Holm). It has drifted if the
    latter is at most the level. `where` is what differs most, or empty.
    """

    name: str
    about: str
    p: float
    adjusted: float = 1.0
    drifted: bool = False
    where: str = ""


def compare_numbers(baseline: Sample, production: Sample, alpha: float) -> list[NumberDrift]:
    """Test each number by itself, at the level `alpha` for all numbers together."""
    names = baseline.features
    return [_compare_number(name, baseline.column(name), production.column(name), alpha / len(names)) for name in names]


def sample_tests(
    baseline: Sample,
    production: Sample,
    numbers: Sequence[NumberDrift],
    rng: np.random.Generator,
    permutations: int,
    notes: list[str],
) -> list[DriftTestResult]:
    """Run the tests of whole samples; `numbers` are the results of `compare_numbers`."""
    p, feature = min((number.kolmogorov_smirnov_p, number.feature) for number in numbers)
    # A space of both samples together keeps permutation tests exact.
    space = FeatureSpace(
        np.concatenate([baseline.numbers, production.numbers]),
        np.concatenate([baseline.embeddings, production.embeddings]),
    )
    results = [
        DriftTestResult("Kolmogorov-Smirnov", "each number", min(1.0, p * len(numbers)), where=feature),
        _outlier_test(baseline, production, space, rng, permutations),
    ]
    if baseline.embeddings.shape[1]:
        rows = space.embeddings(baseline.embeddings), space.embeddings(production.embeddings)
        p = maximum_mean_discrepancy(*rows, rng, permutations)
        results.append(DriftTestResult("MMD of embeddings", "all of them together", p))
    if baseline.task_type and production.task_type:
        label_counts = _most_common_labels(np.concatenate([baseline.counts, production.counts]))
        if np.count_nonzero(label_counts.sum(axis=0)) > 1:
            p = chi_square(label_counts[: len(baseline)], label_counts[len(baseline) :], rng, permutations)
            change = describe_change(label_totals(baseline), label_totals(production))
            results.append(DriftTestResult("chi-square", "labels", p, where=change))
        else:
            notes.append("Labels: fewer than two were found; not compared")
    joined = [space.join(sample.numbers, sample.embeddings) for sample in (baseline, production)]
    p = tail_test(*comparable_distances(joined[0], joined[1], rng))
    return [*results, DriftTestResult("similarity tail", "images unlike any of the baseline", p)]


def compare_mix(
    baseline: Sample, production: Sample, alpha: float, permutations: int, rng: np.random.Generator, notes: list[str]
) -> list[MixDrift]:
    """Test how often each value of each metadata key of both samples occurs, such as each camera.

    A missing key is a value, and all values with fewer than five images together are one: so ids are not tested, nor
    are ISO 8601 times. `alpha` is the level over all keys. `notes` receives sentences about keys that are not tested.
    """
    keys, other_keys = (Counter(key for entry in sample.metadata for key in entry) for sample in (baseline, production))
    if unshared := sorted(keys.keys() ^ other_keys.keys()):
        notes.append(f"Metadata: only one of both has {quote_names(unshared)}; not compared")
    frequent = sorted(keys.keys() & other_keys.keys(), key=lambda key: (-keys[key] - other_keys[key], key))
    if len(frequent) > _MAX_KEYS:
        notes.append(f"Metadata: {quote_names(frequent[_MAX_KEYS:])}: too many keys; not compared")
    values = {key: (_values(key, baseline), _values(key, production)) for key in frequent[:_MAX_KEYS]}
    categories = {key: found for key, (first, second) in values.items() if np.ptp(found := _categories(first + second))}
    if untested := sorted(
        key for key in values.keys() - categories.keys() if len({*values[key][0], *values[key][1]}) > 1
    ):
        notes.append(f"Metadata: {quote_names(untested)}: ids or times, not categories; not compared")
    drifts: list[MixDrift] = []
    p_values = category_excess(list(categories.values()), len(baseline), rng, permutations) if categories else ()
    for key, p in zip(categories, p_values, strict=True):
        counts = Counter(values[key][0]), Counter(values[key][1])
        change, changes = describe_change(*counts), value_counts(*counts)[:_MAX_VALUES]
        drifts.append(MixDrift(key=key, p=p, drifted=p <= alpha, change=change, values=changes))
    return drifts


def describe_change(baseline: Mapping[str, int], production: Mapping[str, int]) -> str:
    """Name the new and the vanished values; without these, the value whose share has changed most."""
    values = value_counts(baseline, production)
    new = [value.value for value in values if not value.baseline]
    gone = [value.value for value in values if not value.production]
    if new or gone:
        return "; ".join(f"{word} {quote_names(names)}" for word, names in (("new", new), ("gone", gone)) if names)
    first = values[0]
    share, other_share = first.baseline / sum(baseline.values()), first.production / sum(production.values())
    return f"{quote_names([first.value])} {share:.0%} -> {other_share:.0%}"


def quote_names(names: Sequence[str]) -> str:
    """List names of clients for one line of a log or terminal: few, shortened, without control characters."""
    printable = [name if name and name.isprintable() else repr(name) for name in names[:_MAX_NAMES]]
    quoted = [name if len(name) <= _MAX_LENGTH else f"{name[:_MAX_LENGTH]}..." for name in printable]
    return ", ".join(quoted) + (f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else "")


def _compare_number(name: str, baseline: Numbers, production: Numbers, level: float) -> NumberDrift:
    distance, distance_p = kolmogorov_smirnov(baseline, production)
    tails = min(tail_test(baseline, production), tail_test(-baseline, -production))
    return NumberDrift(
        feature=name,
        baseline_mean=float(baseline.mean()),
        production_mean=float(production.mean()),
        kolmogorov_smirnov=distance,
        kolmogorov_smirnov_p=distance_p,
        tails_p=min(1.0, 2 * tails),
        drifted=min(distance_p, 2 * tails) <= level / 2,
    )


def label_totals(sample: Sample) -> Mapping[str, int]:
    """Return the number of predictions with each label."""
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
    baseline: Sample, production: Sample, space: FeatureSpace, rng: np.random.Generator, permutations: int
) -> DriftTestResult:
    """Test for a few outliers among all images or within their cluster: dark images may be usual for one camera."""
    numbers = np.concatenate([baseline.numbers, production.numbers])
    cluster = cluster_images(
        space.main_components(np.concatenate([baseline.embeddings, production.embeddings]), _COMPONENTS)
    )
    if cluster.any():
        numbers = np.concatenate([numbers, standardize_within_clusters(numbers, cluster)], axis=1)
    column, p = tail_excess(numbers, len(baseline), rng, permutations)
    feature = baseline.features[column % len(baseline.features)]
    return DriftTestResult("tails", "few images far out in a number", p, where=feature)


def _values(key: str, sample: Sample) -> list[str]:
    return [entry.get(key, NO_VALUE) for entry in sample.metadata]


def _categories(values: Sequence[str]) -> NDArray[np.intp]:
    """Return the category of each value; all of them are equal if they cannot be compared."""
    counts = Counter(values)
    if all(_TIME.fullmatch(value) for value in counts if value != NO_VALUE):
        return np.zeros(len(values), np.intp)
    frequent = [value for value, count in counts.most_common(_MAX_VALUES) if count >= _MIN_FREQUENT]
    numbers = {value: number for number, value in enumerate(frequent)}
    return np.array([numbers.get(value, len(frequent)) for value in values])


def value_counts(baseline: Mapping[str, int], production: Mapping[str, int]) -> list[ValueCount]:
    """Return the counts of each value, by descending change of its share."""
    totals = max(1, sum(baseline.values())), max(1, sum(production.values()))
    counts = [
        ValueCount(value=value, baseline=baseline.get(value, 0), production=production.get(value, 0))
        for value in sorted({*baseline, *production})
    ]
    return sorted(counts, key=lambda count: -abs(count.production / totals[1] - count.baseline / totals[0]))
