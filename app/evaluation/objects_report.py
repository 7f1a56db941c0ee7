"""Convert valor-lite's object metrics into figures, tables and charts.

valor-lite gives a predicted label without true objects an average precision of 0; COCO leaves it out. The report has
both means.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.evaluation.report import Chart, Confusion, Figure, Line, Measures, Mistake, Table
from app.evaluation.slices import Slice

__all__ = ("IOUS", "SCORES", "Precision", "objects_measures", "precision_of")

IOUS = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
"""COCO's thresholds."""
SCORES = tuple(round(0.05 * step, 2) for step in range(20))

_MOST_LINES = 8
_DIFFERENCES = (
    "Average precision is valor-lite's: as many findings of an image count as there are (COCO: 100 of a class), those "
    "with a score of 0 do not.",
    "Each finding is compared with the object of its class that it overlaps most; COCO goes on to the next one when "
    "another finding has that. In crowds of one class the two may differ.",
)


class Precision(msgspec.Struct, frozen=True, kw_only=True):
    """valor-lite's metrics of a subset of the data.

    Attributes:
        ap: average precision by label and IoU threshold.
        recall: mean recall over the IoU thresholds, of predictions with any score, by label.
        counts: right, wrong and missed by label, IoU threshold and score threshold.
        curves: precision at recalls of 0, 0.01 ... 1, by label and IoU threshold.
    """

    ap: Mapping[str, Mapping[float, float]]
    recall: Mapping[str, float]
    counts: Mapping[tuple[str, float, float], tuple[int, int, int]]
    curves: Mapping[tuple[str, float], Sequence[float]]

    def labels(self, *, true_only: bool = False) -> list[str]:
        """Return the labels in this subset; with `true_only`, only labels with true objects."""
        return [label for label in self.ap if self.truths(label) or (not true_only and self.found(label))]

    def truths(self, label: str) -> int:
        """Return the number of true objects of a label."""
        right, _, missed = self.counts[label, IOUS[0], 0.0]
        return right + missed

    def found(self, label: str) -> int:
        """Return the number of predictions of a label."""
        right, wrong, _ = self.counts[label, IOUS[0], 0.0]
        return right + wrong

    def together(self, iou: float, score: float) -> tuple[int, int, int]:
        """Return the counts of right, wrong and missed over all labels."""
        parts = [self.counts[label, iou, score] for label in self.ap]
        right, wrong, missed = (sum(part[place] for part in parts) for place in range(3))
        return right, wrong, missed


def precision_of(metrics: Mapping[Any, Sequence[Any]]) -> Precision:
    """Convert the result of valor-lite's ``compute_precision_recall`` for `IOUS` and scores that include 0."""
    by_name = {kind.value: values for kind, values in metrics.items()}
    ap: dict[str, dict[float, float]] = {}
    for metric in by_name["AP"]:
        ap.setdefault(metric.parameters["label"], {})[metric.parameters["iou_threshold"]] = metric.value
    return Precision(
        ap=ap,
        recall={
            metric.parameters["label"]: metric.value
            for metric in by_name["AR"]
            if metric.parameters["score_threshold"] == 0.0
        },
        counts={
            (metric.parameters["label"], metric.parameters["iou_threshold"], metric.parameters["score_threshold"]): (
                metric.value["tp"],
                metric.value["fp"],
                metric.value["fn"],
            )
            for metric in by_name["Counts"]
        },
        curves={
            (metric.parameters["label"], metric.parameters["iou_threshold"]): metric.value["precisions"]
            for metric in by_name["PrecisionRecallCurve"]
        },
    )


def objects_measures(
    overall: Precision | None,
    confusion: Confusion | None,
    confidence: float,
    parts: Sequence[tuple[Slice, Precision]],
    mistakes: Sequence[Mistake] = (),
    notes: Sequence[str] = (),
) -> Measures:
    """Return all results. Figures have no value if there was nothing to measure."""
    if overall is None:
        return Measures(figures=_figures(None, confidence))
    tables = [_classes(overall, confidence), _ious(overall)]
    if parts:
        tables.append(_slices(parts, confidence))
    return Measures(
        figures=_figures(overall, confidence),
        tables=tuple(tables),
        charts=_charts(overall),
        confusion=confusion,
        mistakes=tuple(mistakes),
        notes=(*notes, *_invented(overall), *_DIFFERENCES),
    )


def _figures(found: Precision | None, confidence: float) -> tuple[Figure, ...]:
    at = f"IoU 0.5, score {confidence:g}"
    titles = {
        "map": "mAP, IoU 0.5 to 0.95",
        "ap50": "mAP, IoU 0.5",
        "ap75": "mAP, IoU 0.75",
        "map_coco": "mAP of labels that are true somewhere (COCO's mean)",
        "ar": "mAR, IoU 0.5 to 0.95",
        "precision": f"precision, {at}",
        "recall": f"recall, {at}",
        "f1": f"F1, {at}",
    }
    values = _values(found, confidence) if found else dict.fromkeys(titles)
    return tuple(Figure(name=name, title=title, value=values[name]) for name, title in titles.items())


def _invented(found: Precision) -> list[str]:
    invented = sorted({*found.labels()} - {*found.labels(true_only=True)})
    if not invented:
        return []
    said = f"{len(invented)} labels were found and are nowhere true: they count as 0 in map, ap50 and ap75"
    return [f"{said} (valor-lite's mean, and Chariot's), and are left out of map_coco."]


def _values(found: Precision, confidence: float) -> Mapping[str, float | None]:
    labels, true = found.labels(), found.labels(true_only=True)
    precision, recall, f1 = _rates(found.together(IOUS[0], confidence))
    return {
        "map": _mean([_averaged(found, label) for label in labels]),
        "ap50": _mean([found.ap[label][0.5] for label in labels]),
        "ap75": _mean([found.ap[label][0.75] for label in labels]),
        "map_coco": _mean([_averaged(found, label) for label in true]),
        "ar": _mean([found.recall[label] for label in true]),
        "precision": precision,
        "recall": recall,
        "f1": f1,
    }


def _classes(found: Precision, confidence: float) -> Table:
    rows: list[tuple[str | float | int | None, ...]] = []
    for label in sorted(found.labels()):
        rates = _rates(found.counts[label, IOUS[0], confidence])
        ap = found.ap[label]
        rows.append(
            (label, found.truths(label), _averaged(found, label), ap[0.5], ap[0.75], found.recall[label], *rates)
        )
    columns = ("class", "objects", "AP", "AP50", "AP75", "AR", "precision", "recall", "F1")
    return Table(
        title=f"Classes; precision, recall and F1 at IoU 0.5, score {confidence:g}", columns=columns, rows=tuple(rows)
    )


def _ious(found: Precision) -> Table:
    best = [max(((_rates(found.together(iou, score))[2] or 0.0), -score) for score in SCORES) for iou in IOUS]
    rows = tuple(
        (f"{iou:g}", _mean([found.ap[label][iou] for label in found.labels()]), f1, -score)
        for iou, (f1, score) in zip(IOUS, best, strict=True)
    )
    return Table(title="IoU thresholds", columns=("IoU", "mAP", "best F1", "at a score of"), rows=rows)


def _slices(parts: Sequence[tuple[Slice, Precision]], confidence: float) -> Table:
    """Return means over the labels with true objects in the slice, because small slices lack many labels."""
    rows: list[tuple[str | float | int | None, ...]] = []
    for part, found in parts:
        true = found.labels(true_only=True)
        at_half = _mean([found.ap[label][0.5] for label in true])
        values = _values(found, confidence)
        own = (values["map_coco"], at_half, *(values[name] for name in ("ar", "precision", "recall", "f1")))
        rows.append((f"{part.key} = {part.value}", part.items, *own))
    columns = ("slice", "images", "mAP (COCO's mean)", "mAP50", "mAR", "precision", "recall", "F1")
    return Table(title="Slices", columns=columns, rows=tuple(rows))


def _charts(found: Precision) -> tuple[Chart, ...]:
    recalls = tuple(step / 100 for step in range(101))
    labels = sorted(found.labels(true_only=True), key=lambda label: -found.truths(label))
    lines: list[Line] = []
    if labels:
        means = [sum(found.curves[label, 0.5][step] for label in labels) / len(labels) for step in range(101)]
        lines.append(Line(name="all classes", xs=recalls, ys=tuple(means)))
    lines += [Line(name=label, xs=recalls, ys=tuple(found.curves[label, 0.5])) for label in labels[:_MOST_LINES]]
    rates = [_rates(found.together(0.5, score)) for score in SCORES]
    return (
        Chart(title="Precision over recall, IoU 0.5", x="recall", y="precision", lines=tuple(lines)),
        Chart(
            title="Score thresholds, IoU 0.5",
            x="score threshold",
            y="",
            lines=tuple(
                Line(name=name, xs=SCORES, ys=tuple(rate[index] or 0.0 for rate in rates))
                for index, name in enumerate(("precision", "recall", "F1"))
            ),
        ),
        Chart(
            title="mAP over IoU thresholds",
            x="IoU threshold",
            y="mAP",
            lines=(
                Line(
                    name="mAP",
                    xs=IOUS,
                    ys=tuple(_mean([found.ap[label][iou] for label in found.labels()]) or 0.0 for iou in IOUS),
                ),
            ),
        ),
    )


def _averaged(found: Precision, label: str) -> float:
    return sum(found.ap[label].values()) / len(found.ap[label])


def _rates(counts: tuple[int, int, int]) -> tuple[float | None, float | None, float | None]:
    """Return precision, recall and F1; None for a division by zero."""
    right, wrong, missed = counts
    precision = right / (right + wrong) if right + wrong else None
    recall = right / (right + missed) if right + missed else None
    f1 = 2 * right / (2 * right + wrong + missed) if right + wrong + missed else None
    return precision, recall, f1


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
