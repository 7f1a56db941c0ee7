"""What a comparison says."""

from collections.abc import Sequence

import msgspec

__all__ = ("Comparison", "LabelShare", "NumberDrift", "Outlier", "SliceDrift", "Tested")


class Tested(msgspec.Struct, frozen=True, kw_only=True):
    """One test of the verdict.

    Attributes:
        name: of the test.
        about: what it looks at.
        p: its p-value, corrected for all the numbers or slices that it looks at.
        adjusted: corrected for the other tests too (Holm).
        drifted: whether that is at most the level.
        where: the number or slice that differs most, or nothing.
    """

    name: str
    about: str
    p: float
    adjusted: float
    drifted: bool
    where: str = ""


class NumberDrift(msgspec.Struct, frozen=True, kw_only=True):
    """One number of the images. The p-values are as they are, for this number alone; PSI has no part in the verdict."""

    feature: str
    baseline_mean: float
    production_mean: float
    kolmogorov_smirnov: float
    kolmogorov_smirnov_p: float
    cramer_von_mises: float
    cramer_von_mises_p: float
    tails_p: float
    psi: float
    psi_says: str
    drifted: bool


class LabelShare(msgspec.Struct, frozen=True, kw_only=True):
    """How often a label was found, as a share of everything found. `known` when it was in the baseline."""

    label: str
    baseline: float
    production: float
    known: bool


class SliceDrift(msgspec.Struct, frozen=True, kw_only=True):
    """The images that have one value in their metadata.

    Attributes:
        key: of the metadata.
        value: under it.
        baseline: so many images.
        production: so many images.
        p: of its tests together (Holm); None when there are too few images.
        q: corrected for the share of false alarms among slices (Benjamini and Hochberg).
        drifted: whether that is at most the level.
    """

    key: str
    value: str
    baseline: int
    production: int
    p: float | None = None
    q: float | None = None
    drifted: bool = False


class Outlier(msgspec.Struct, frozen=True, kw_only=True):
    """An image of production, and how much it is like the baseline, 0..1."""

    id: str
    similarity: float


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What was found.

    Attributes:
        drifted: the verdict: whether any test says so.
        alpha: the level: the chance of that verdict where nothing has changed.
        baseline: so many images.
        production: so many images.
        tests: those of the verdict.
        numbers: each number of the images.
        labels: of the answers.
        slices: by metadata, as far as they were asked for.
        baseline_similarity: the mean of the baseline's images to the others.
        production_similarity: the mean.
        outliers: the images of production that are least like the baseline.
        notes: what could not be compared.
    """

    drifted: bool
    alpha: float
    baseline: int
    production: int
    tests: Sequence[Tested]
    numbers: Sequence[NumberDrift]
    labels: Sequence[LabelShare]
    slices: Sequence[SliceDrift]
    baseline_similarity: float
    production_similarity: float
    outliers: Sequence[Outlier]
    notes: Sequence[str]
