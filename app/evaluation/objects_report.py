"""Convert valor-lite's object metrics into figures, tables and charts.

valor-lite gives a predicted label without true objects an average precision of 0; COCO leaves it out. The report has
both means.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.evaluation.report import Chart, Confusion, Figure, Line, Measures, Mistake, Table
from app.evaluation.slices import Slice

__all__ = ("IOUS", "SCORES", "ObjectMetrics", "build_measures", "read_metrics")

IOUS = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
"""COCO's thresholds."""
SCORES = tuple(round(0.05 * step, 2) for step in range(20))

_MAX_LINES = 8
_DIFFERENCES = (
    "Average precision is valor-lite's: as many findings of an image count as there are (COCO: 100 of a class), those "
    "with a score of 0 do not.",
    "Each finding is compared with the object of its class that it overlaps most; COCO goes on to the next one when "
    "another finding has that. In crowds of one class the two may differ.",
)


class ObjectMetrics(msgspec.Struct, frozen=True, kw_only=True):
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
        return [
            label for label in self.ap if self.truth_count(label) or (not true_only and self.prediction_count(label))
        ]

    def truth_count(self, label: str) -> int:
        """Return the number of true objects of a label."""
        right, _, missed = self.counts[label, IOUS[0], 0.0]
        return right + missed

    def prediction_count(self, label: str) -> int:
        """Return the number of predictions of a label."""
        right, wrong, _ = self.counts[label, IOUS[0], 0.0]
        return right + wrong

    def totals(self, iou: float, score: float) -> tuple[int, int, int]:
        """Return the counts of right, wrong and missed over all labels."""
        counts = [self.counts[label, iou, score] for label in self.ap]
        right, wrong, missed = (sum(label_counts[index] for label_counts in counts) for index in range(3))
        return right, wrong, missed


def read_metrics(metrics: Mapping[Any, Sequence[Any]]) -> ObjectMetrics:
    """Convert the result of valor-lite's ``compute_precision_recall`` for `IOUS` and scores that include 0."""
    by_name = {kind.value: values for kind, values in metrics.items()}
    ap: dict[str, dict[float, float]] = {}
    for metric in by_name["AP"]:
        ap.setdefault(metric.parameters["label"], {})[metric.parameters["iou_threshold"]] = metric.value
    return ObjectMetrics(
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


def build_measures(
    overall: ObjectMetrics | None,
    confusion: Confusion | None,
    confidence: float,
    slice_metrics: Sequence[tuple[Slice, ObjectMetrics]],
    mistakes: Sequence[Mistake] = (),
    notes: Sequence[str] = (),
) -> Measures:
    """Return all results. Figures have no value if there was nothing to measure."""
    if overall is None:
        return Measures(figures=_figures(None, confidence))
    tables = [_classes(overall, confidence), _ious(overall)]
    if slice_metrics:
        tables.append(_slices(slice_metrics, confidence))
    return Measures(
        figures=_figures(overall, confidence),
        tables=tuple(tables),
        charts=_charts(overall),
        confusion=confusion,
        mistakes=tuple(mistakes),
        notes=(*notes, *_spurious_label_notes(overall), *_DIFFERENCES),
    )


def _figures(metrics: ObjectMetrics | None, confidence: float) -> tuple[Figure, ...]:
    thresholds = f"IoU 0.5, score {confidence:g}"
    titles = {
        "map": "mAP, IoU 0.5 to 0.95",
        "ap50": "mAP, IoU 0.5",
        "ap75": "mAP, IoU 0.75",
        "map_coco": "mAP of labels that are true somewhere (COCO's mean)",
        "ar": "mAR, IoU 0.5 to 0.95",
        "precision": f"precision, {thresholds}",
        "recall": f"recall, {thresholds}",
        "f1": f"F1, {thresholds}",
    }
    values = _values(metrics, confidence) if metrics else dict.fromkeys(titles)
    return tuple(Figure(name=name, title=title, value=values[name]) for name, title in titles.items())


def _spurious_label_notes(metrics: ObjectMetrics) -> list[str]:
    spurious = sorted({*metrics.labels()} - {*metrics.labels(true_only=True)})
    if not spurious:
        return []
    sentence = f"{len(spurious)} labels were found and are nowhere true: they count as 0 in map, ap50 and ap75"
    return [f"{sentence} (valor-lite's mean, and Chariot's), and are left out of map_coco."]


def _values(metrics: ObjectMetrics, confidence: float) -> Mapping[str, float | None]:
    labels, true = metrics.labels(), metrics.labels(true_only=True)
    precision, recall, f1 = _rates(metrics.totals(IOUS[0], confidence))
    return {
        "map": _mean([_mean_ap(metrics, label) for label in labels]),
        "ap50": _mean([metrics.ap[label][0.5] for label in labels]),
        "ap75": _mean([metrics.ap[label][0.75] for label in labels]),
        "map_coco": _mean([_mean_ap(metrics, label) for label in true]),
        "ar": _mean([metrics.recall[label] for label in true]),
        "precision": precision,
        "recall": recall,
        "f1": f1,
    }


def _classes(metrics: ObjectMetrics, confidence: float) -> Table:
    rows: list[tuple[str | float | int | None, ...]] = []
    for label in sorted(metrics.labels()):
        rates = _rates(metrics.counts[label, IOUS[0], confidence])
        ap = metrics.ap[label]
        rows.append(
            (
                label,
                metrics.truth_count(label),
                _mean_ap(metrics, label),
                ap[0.5],
                ap[0.75],
                metrics.recall[label],
                *rates,
            )
        )
    columns = ("class", "objects", "AP", "AP50", "AP75", "AR", "precision", "recall", "F1")
    return Table(
        title=f"Classes; precision, recall and F1 at IoU 0.5, score {confidence:g}", columns=columns, rows=tuple(rows)
    )


def _ious(metrics: ObjectMetrics) -> Table:
    best = [max(((_rates(metrics.totals(iou, score))[2] or 0.0), -score) for score in SCORES) for iou in IOUS]
    rows = tuple(
        (f"{iou:g}", _mean([metrics.ap[label][iou] for label in metrics.labels()]), f1, -score)
        for iou, (f1, score) in zip(IOUS, best, strict=True)
    )
    return Table(title="IoU thresholds", columns=("IoU", "mAP", "best F1", "at a score of"), rows=rows)


def _slices(slice_metrics: Sequence[tuple[Slice, ObjectMetrics]], confidence: float) -> Table:
    """Return means over the labels with true objects in the slice, because small slices lack many labels."""
    rows: list[tuple[str | float | int | None, ...]] = []
    for data_slice, metrics in slice_metrics:
        true = metrics.labels(true_only=True)
        map50 = _mean([metrics.ap[label][0.5] for label in true])
        values = _values(metrics, confidence)
        cells = (values["map_coco"], map50, *(values[name] for name in ("ar", "precision", "recall", "f1")))
        rows.append((f"{data_slice.key} = {data_slice.value}", data_slice.items, *cells))
    columns = ("slice", "images", "mAP (COCO's mean)", "mAP50", "mAR", "precision", "recall", "F1")
    return Table(title="Slices", columns=columns, rows=tuple(rows))


def _charts(metrics: ObjectMetrics) -> tuple[Chart, ...]:
    recalls = tuple(step / 100 for step in range(101))
    labels = sorted(metrics.labels(true_only=True), key=lambda label: -metrics.truth_count(label))
    lines: list[Line] = []
    if labels:
        means = [sum(metrics.curves[label, 0.5][step] for label in labels) / len(labels) for step in range(101)]
        lines.append(Line(name="all classes", xs=recalls, ys=tuple(means)))
    lines += [Line(name=label, xs=recalls, ys=tuple(metrics.curves[label, 0.5])) for label in labels[:_MAX_LINES]]
    rates = [_rates(metrics.totals(0.5, score)) for score in SCORES]
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
                    ys=tuple(_mean([metrics.ap[label][iou] for label in metrics.labels()]) or 0.0 for iou in IOUS),
                ),
            ),
        ),
    )


def _mean_ap(metrics: ObjectMetrics, label: str) -> float:
    return sum(metrics.ap[label].values()) / len(metrics.ap[label])


def _rates(counts: tuple[int, int, int]) -> tuple[float | None, float | None, float | None]:
    """Return precision, recall and F1; None for a division by zero."""
    right, wrong, missed = counts
    precision = right / (right + wrong) if right + wrong else None
    recall = right / (right + missed) if right + missed else None
    f1 = 2 * right / (2 * right + wrong + missed) if right + wrong + missed else None
    return precision, recall, f1


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
