"""Convert a report into plain values for JSON."""

from typing import Any

import msgspec

from app import __version__
from app.evaluation.report import EvaluationReport, Mistake

_MAX_MISTAKES = 100


def to_plain(report: EvaluationReport) -> dict[str, Any]:
    """Return the complete report without images. It lists the worst hundred images with mistakes."""
    measures = report.measures
    return {
        "charioteer": __version__,
        "task": report.task.value,
        "dataset": report.dataset,
        "format": report.format,
        "source": report.source,
        "images": report.images,
        "measured": report.measured,
        "figures": {figure.name: figure.value for figure in measures.figures},
        "tables": [
            {"title": table.title, "rows": [dict(zip(table.columns, row, strict=True)) for row in table.rows]}
            for table in measures.tables
        ],
        "charts": msgspec.to_builtins(measures.charts),
        "confusion": msgspec.to_builtins(measures.confusion),
        "mistakes": [_mistake(mistake) for mistake in measures.mistakes[:_MAX_MISTAKES]],
        "failures": dict(report.failures),
        "notes": list(report.notes),
    }


def json_report(report: EvaluationReport) -> bytes:
    """Return the result of `to_plain` as JSON."""
    return msgspec.json.format(msgspec.json.encode(to_plain(report)))


def _mistake(mistake: Mistake) -> dict[str, Any]:
    objects, predictions = mistake.result.item.objects, mistake.result.predictions
    return {
        "id": mistake.result.item.id,
        "why": mistake.why,
        "missed": [{"label": objects[index].label, "place": objects[index].location} for index in mistake.missed],
        "wrong": [{"label": predictions[index].label, "score": predictions[index].score} for index in mistake.wrong],
    }
