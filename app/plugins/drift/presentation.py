"""Present a comparison with a baseline as a report."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from app.plugins.drift.comparison import DriftComparison
from app.plugins.drift.sample import Sample
from app.plugins.drift.suite import MixDrift, NumberDrift, ValueCount
from app.report import AnnotatedImage, Chart, ChartLine, Mark, Report, Table
from tasks.vision.image import decode_image, small_jpeg

_BINS = 30
_THUMBNAIL = 220
_QUALITY = 80
_MAX_ROWS = 40
_MAX_PRINTED_LABELS = 20
_SMALLEST_P = 0.001


def present(
    comparison: DriftComparison,
    names: tuple[str, str],
    samples: tuple[Sample, Sample] | None = None,
    load_image: Callable[[str], bytes | None] = lambda _: None,
) -> Report:
    """Return the report: verdict, tests and changes; with `samples`, also distributions and the least similar images.

    `names` are readable names of the samples, baseline first. `load_image` returns the file of an id, None if it was
    deleted.
    """
    baseline, production = names
    labels = [_counts("Labels", comparison.labels)] if comparison.labels else []
    return Report(
        title="Drift was found" if comparison.drifted else "No drift was found",
        summary=(
            f"Baseline {baseline}: {comparison.baseline} images. Production {production}: {comparison.production} "
            f"images. Where nothing has changed, a verdict of drift has a chance of {comparison.alpha:g}.",
            f"Similarity to the baseline {comparison.production_similarity:.3f}, of the baseline to itself "
            f"{comparison.baseline_similarity:.3f}.",
        ),
        tables=[_tests(comparison), *map(_mix, comparison.mix), *labels],
        charts=[_distribution(number, *samples) for number in comparison.numbers] if samples else (),
        images=[
            _annotated_image(outlier.id, f"similarity {outlier.similarity:.3f}", load_image)
            for outlier in (comparison.outliers if samples else ())
        ],
        images_title="Least like the baseline",
        notes=_notes(comparison),
    )


def _tests(comparison: DriftComparison) -> Table:
    rows = tuple(
        (test.name, test.about, test.where, _p(test.p), _p(test.adjusted), _verdict(drifted=test.drifted))
        for test in comparison.tests
    )
    return Table(title="Tests", columns=("test", "compares", "differs most", "p", "corrected p", "verdict"), rows=rows)


def _p(p: float) -> str:
    """Return a p-value as text: no test shows that it is 0."""
    return f"{p:.3f}" if p >= _SMALLEST_P else f"< {_SMALLEST_P}"


def _verdict(*, drifted: bool) -> Mark:
    return Mark("drifted", "bad") if drifted else Mark("no drift seen", "good")


def _mix(drift: MixDrift) -> Table:
    note = f"{_verdict(drifted=drift.drifted).text}: {drift.change}, p {_p(drift.p)}"
    return _counts(f"Mix of {drift.key}", drift.values, note)


def _counts(title: str, values: Sequence[ValueCount], note: str = "") -> Table:
    marks = {(True, False): " (not in the baseline)", (False, True): " (gone)"}
    rows = tuple(
        (value.value + marks.get((not value.baseline, not value.production), ""), value.baseline, value.production)
        for value in values[:_MAX_ROWS]
    )
    columns = ("value", "baseline", "production")
    return Table(title=title, columns=columns, rows=rows, printed=False, note=note)


def _notes(comparison: DriftComparison) -> Sequence[str]:
    changes = [
        f"{drift.key}: {drift.change}"
        for drift in comparison.mix
        if drift.drifted or not all(value.baseline for value in drift.values)
    ]
    unknown = [label.value for label in comparison.labels if not label.baseline]
    listed = [f"Not in the baseline: {', '.join(unknown[:_MAX_PRINTED_LABELS])}"] if unknown else []
    return [*comparison.notes, *changes, *listed]


def _distribution(number: NumberDrift, baseline: Sample, production: Sample) -> Chart:
    """Return two distributions, in shares over the same bins, relative to the highest one."""
    columns = baseline.column(number.feature), production.column(number.feature)
    pooled = np.concatenate(columns)
    low, high = float(pooled.min()), float(pooled.max())
    edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    shares = [np.histogram(values, edges)[0] / len(values) for values in columns]
    top = max(float(share.max()) for share in shares)
    steps = [_steps(share / top) for share in shares]
    xs = tuple(np.repeat(edges, 2).tolist())
    means = f"mean {number.baseline_mean:.4g} -> {number.production_mean:.4g}"
    p, tails_p = _p(number.kolmogorov_smirnov_p), _p(number.tails_p)
    tests = f"KS {number.kolmogorov_smirnov:.3f}, p {p}; tails p {tails_p}"
    return Chart(
        title=number.feature + (": drifted" if number.drifted else ""),
        x="",
        y="",
        lines=(
            ChartLine(name="production", xs=xs, ys=steps[1]),
            ChartLine(name="baseline", xs=xs, ys=steps[0], filled=True),
        ),
        note=f"{means}; {tests}",
        x_range=(float(edges[0]), float(edges[-1])),
    )


def _steps(heights: NDArray[np.float64]) -> tuple[float, ...]:
    return (0.0, *np.repeat(heights, 2).tolist(), 0.0)


def _annotated_image(name: str, description: str, load_image: Callable[[str], bytes | None]) -> AnnotatedImage:
    """Return the image, encoded again: the report has no bytes of the original file."""
    data = load_image(name)
    if data is None:
        return AnnotatedImage(name=name, description=f"{description}; no image stored")
    pixels = decode_image(data).pixels
    height, width = pixels.shape[:2]
    jpeg = small_jpeg(pixels, _THUMBNAIL, _QUALITY)
    return AnnotatedImage(name=name, description=description, jpeg=jpeg, width=width, height=height)
