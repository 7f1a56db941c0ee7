"""Compare a baseline with production: all tests, and one verdict."""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from app.plugins.drift.feature_space import Neighbourhood
from app.plugins.drift.hypothesis_tests import PERMUTATIONS, holm
from app.plugins.drift.sample import PREDICTION_FEATURES, DriftError, Sample
from app.plugins.drift.suite import (
    DriftTestResult,
    MixDrift,
    NumberDrift,
    ValueCount,
    compare_mix,
    compare_numbers,
    label_totals,
    quote_names,
    sample_tests,
    value_counts,
)

ALPHA = 0.01
"""The probability of a false verdict of drift."""

_SEED = 0
_TESTS = 6
"""Maximum number of tests in the verdict."""

_MAX_PERMUTATIONS = 20_000
_OUTLIERS = 12


class Outlier(msgspec.Struct, frozen=True, kw_only=True):
    """An image of production, and its similarity to the baseline, 0..1."""

    id: str
    similarity: float


class DriftComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a comparison of `baseline` images with `production` images.

    Any test decides the verdict, at the level `alpha`, the probability of a false verdict of drift. The similarities
    are means of the baseline's images to one another, and of production's to the baseline. `outliers` are the images of
    production least similar to it, `notes` sentences about data that was not compared.
    """

    drifted: bool
    alpha: float
    baseline: int
    production: int
    tests: Sequence[DriftTestResult]
    numbers: Sequence[NumberDrift]
    labels: Sequence[ValueCount]
    mix: Sequence[MixDrift]
    baseline_similarity: float
    production_similarity: float
    outliers: Sequence[Outlier]
    notes: Sequence[str]


def compare(
    baseline: Sample, production: Sample, *, alpha: float = ALPHA, neighbourhood: Neighbourhood | None = None
) -> DriftComparison:
    """Compare production with a baseline; a test of several numbers is corrected for their count.

    Holm's correction over the tests keeps the probability of a false alarm at `alpha`, if images are independent.
    `neighbourhood` has the baseline's shared columns, if it is known. Raise DriftError without shared columns.
    """
    notes: list[str] = []
    baseline, production = _common_columns(baseline, production, notes)
    rng = np.random.default_rng(_SEED)
    baseline_neighbourhood = neighbourhood or Neighbourhood(baseline.numbers, baseline.embeddings)
    distances = baseline_neighbourhood.distances_of(production.numbers, production.embeddings)
    numbers = compare_numbers(baseline, production, alpha)
    # The smallest p-value must stay below the level after the correction for the other tests.
    permutations = max(PERMUTATIONS, min(_MAX_PERMUTATIONS, math.ceil(_TESTS / alpha)))
    results = sample_tests(baseline, production, numbers, rng, permutations, notes)
    mix = compare_mix(baseline, production, alpha, permutations, rng, notes)
    if mix:
        worst = min(mix, key=lambda drift: drift.p)
        about, where = f"metadata: {quote_names([drift.key for drift in mix])}", quote_names([worst.key])
        results.append(DriftTestResult("mix", about, worst.p, where=f"{where}: {worst.change}"))
    tests = [
        msgspec.structs.replace(result, adjusted=adjusted, drifted=adjusted <= alpha)
        for result, adjusted in zip(results, holm([result.p for result in results]), strict=True)
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
        labels=value_counts(label_totals(baseline), label_totals(production)),
        mix=mix,
        baseline_similarity=float(baseline_neighbourhood.similarity(baseline_neighbourhood.distances).mean()),
        production_similarity=float(similarity.mean()),
        outliers=[Outlier(id=production.ids[row], similarity=float(similarity[row])) for row in least_similar],
        notes=notes,
    )


def _common_columns(baseline: Sample, production: Sample, notes: list[str]) -> tuple[Sample, Sample]:
    tasks = baseline.task_type, production.task_type
    if all(tasks) and tasks[0] != tasks[1]:
        raise DriftError(f"The baseline is of {tasks[0]}, production of {tasks[1]}: compare one task")
    features = [feature for feature in baseline.features if feature in production.features]
    if not features:
        reason = "one has no pixels, the other no answers"
        raise DriftError(f"The baseline and production have no number in common: {reason}")
    if unshared := [feature for feature in (*baseline.features, *production.features) if feature not in features]:
        notes.append(f"Only one of both has {', '.join(dict.fromkeys(unshared))}; not compared")
    lengths = baseline.embeddings.shape[1], production.embeddings.shape[1]
    if all(lengths) and lengths[0] != lengths[1]:
        numbers = f"{lengths[0]} numbers, production of {lengths[1]}"
        raise DriftError(f"The baseline has embeddings of {numbers}: use one embedder")
    if any(lengths) and not all(lengths):
        notes.append("Only one of both has embeddings; not compared")
    # Without answers of both, labels would seem to be new or gone.
    labels = sorted({*baseline.labels, *production.labels}) if PREDICTION_FEATURES[0] in features else []
    first, second = (_select_columns(sample, features, all(lengths), labels) for sample in (baseline, production))
    return first, second


def _select_columns(sample: Sample, features: Sequence[str], embedded: bool, labels: Sequence[str]) -> Sample:
    counts = np.zeros((len(sample), len(labels)), np.int64)
    if labels:
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
