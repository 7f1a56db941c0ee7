"""The result of a comparison."""

from collections.abc import Sequence

import msgspec


class DriftTestResult(msgspec.Struct, frozen=True, kw_only=True):
    """One test of the verdict about some values.

    `p` is corrected for the count of its numbers, `adjusted` for the other tests too (Holm). It has drifted if the
    latter is at most the level. `where` is what differs most, or empty.
    """

    name: str
    about: str
    p: float
    adjusted: float
    drifted: bool
    where: str = ""


class NumberDrift(msgspec.Struct, frozen=True, kw_only=True):
    """One number of the images. Its p-values are uncorrected. The PSI does not affect the verdict."""

    feature: str
    baseline_mean: float
    production_mean: float
    kolmogorov_smirnov: float
    kolmogorov_smirnov_p: float
    tails_p: float
    psi: float
    psi_level: str
    drifted: bool


class LabelShare(msgspec.Struct, frozen=True, kw_only=True):
    """The share of a label among all predictions. `known` is true if the baseline has the label."""

    label: str
    baseline: float
    production: float
    known: bool


class ValueCount(msgspec.Struct, frozen=True, kw_only=True):
    """The number of images with one value of a metadata key."""

    value: str
    baseline: int
    production: int


class MixDrift(msgspec.Struct, frozen=True, kw_only=True):
    """How often each value of one metadata key occurs.

    `p` is uncorrected; `drifted` says whether it is at most the level, corrected for the count of keys. `change` names
    the new and the vanished values, or else the one whose share has changed most. `values` are in the order of change.
    """

    key: str
    p: float
    drifted: bool
    change: str
    values: Sequence[ValueCount]


class Outlier(msgspec.Struct, frozen=True, kw_only=True):
    """An image of production, and its similarity to the baseline, 0..1."""

    id: str
    similarity: float


class DriftComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a comparison of `baseline` images with `production` images.

    The verdict is that of any test; at the level `alpha`, the probability of a false verdict of drift. The similarities
    are means of the baseline's images to one another, and of production's to the baseline. `outliers` are the images of
    production least similar to it, `notes` sentences about data that was not compared.
    """

    drifted: bool
    alpha: float
    baseline: int
    production: int
    tests: Sequence[DriftTestResult]
    numbers: Sequence[NumberDrift]
    labels: Sequence[LabelShare]
    mix: Sequence[MixDrift]
    baseline_similarity: float
    production_similarity: float
    outliers: Sequence[Outlier]
    notes: Sequence[str]
