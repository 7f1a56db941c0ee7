"""Render a comparison as JSON or as a self-contained HTML page."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from jinja2 import Environment, StrictUndefined
from numpy.typing import NDArray

from app.plugins.drift.result import DriftComparison
from app.plugins.drift.sample import Sample
from tasks.vision.image import decode_image, small_jpeg

_BINS = 30
_WIDTH, _HEIGHT = 260, 90
_THUMBNAIL = 220
_QUALITY = 80


def json_report(comparison: DriftComparison) -> bytes:
    """Return the complete comparison as JSON."""
    return msgspec.json.format(msgspec.json.encode(comparison), indent=2)


def html_report(
    comparison: DriftComparison,
    baseline: Sample,
    production: Sample,
    names: tuple[str, str],
    load_image: Callable[[str], bytes | None],
) -> bytes:
    """Render the page: verdict, tests, distributions, and the least similar images. All text is escaped.

    `names` are readable names of the samples. `load_image` returns the file of an id, None if it was deleted.
    """
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(
        Path(__file__).with_name("report.html.jinja").read_text(encoding="utf-8")
    )
    charts = {
        number.feature: histogram(baseline.column(number.feature), production.column(number.feature))
        for number in comparison.numbers
    }
    thumbnails = {outlier.id: _thumbnail(load_image(outlier.id)) for outlier in comparison.outliers}
    labels = sorted(comparison.labels, key=lambda label: -abs(label.production - label.baseline))
    return template.render(
        comparison=comparison, charts=charts, thumbnails=thumbnails, labels=labels[:40],
        more_labels=max(0, len(labels) - 40),
        baseline_name=names[0], production_name=names[1],
    ).encode()  # fmt: skip


def histogram(baseline: NDArray[np.float64], production: NDArray[np.float64]) -> dict[str, Any]:
    """Return the SVG paths of two distributions, in shares over the same bins, and the range of the bins."""
    pooled = np.concatenate([baseline, production])
    low, high = float(pooled.min()), float(pooled.max())
    edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    shares = [np.histogram(values, edges)[0] / len(values) for values in (baseline, production)]
    top = max(float(share.max()) for share in shares)
    area, line = (_path(share / top) for share in shares)
    return {"area": area, "line": line, "low": float(edges[0]), "high": float(edges[-1])}


def _path(heights: NDArray[np.float64]) -> str:
    step = _WIDTH / len(heights)
    tops = (_HEIGHT - 2 - (_HEIGHT - 6) * heights).tolist()
    return f"M0 {_HEIGHT} " + " ".join(f"V{top:.1f} H{index * step:.1f}" for index, top in enumerate(tops, 1))


def _thumbnail(data: bytes | None) -> str | None:
    """Return a re-encoded small JPEG as a data URI. The page contains no bytes of the original file."""
    if data is None:
        return None
    jpeg = small_jpeg(decode_image(data).pixels, _THUMBNAIL, _QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode()
