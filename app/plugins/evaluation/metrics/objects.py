"""Measure detection, oriented detection and segmentation, as COCO does and as Chariot's evaluations do."""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from app.core.cli.terminal import counted
from app.plugins.evaluation.answers import EvaluatedItem
from app.plugins.evaluation.metrics.coco import IOUS, CocoMetrics, ImageComparison, coco_metrics, compare
from app.plugins.evaluation.metrics.valor import ValorMetrics, confusion_matrix, list_mistakes, valor_metrics
from app.plugins.evaluation.report import Measures, slice_tables
from app.report import Chart, ChartLine, Figure, Table
from tasks.task import TaskType

_SCORES = tuple(round(0.05 * step, 2) for step in range(20))
_MAX_LINES = 8
_FEW_IMAGES = 100
_CHARIOT_MAP = "mAPAveragedOverIOUs"

_Row = tuple[str | float | int | None, ...]


def measure_objects(
    results: Sequence[EvaluatedItem],
    labels: Sequence[str],
    task: TaskType,
    confidence: float,
    slices: Sequence[str] = (),
    progress: Callable[[int], None] = lambda _: None,
) -> Measures:
    """Measure predictions against the objects of their items. Other labels than `labels` count in Valor's figure only.

    Predictions with a score below `confidence` count in average precision only. `slices` are keys of metadata;
    `progress` is called with the number of compared items.
    """
    comparisons: list[ImageComparison] = []
    for index, result in enumerate(results):
        comparisons.append(compare(result, task))
        progress(index + 1)
    overall = _object_metrics(comparisons, labels, sorted({*_SCORES, confidence}))
    evaluator, skipped = overall.valor.evaluator, overall.valor.skipped
    figures = overall.figures(confidence)
    names = [figure.name for figure in figures]
    if {prediction.label for result in results for prediction in result.predictions} - {*overall.coco.labels}:
        # Chariot's mAP counts these labels as 0. Few readers of the first figures expect that.
        figures = tuple(sorted(figures, key=lambda figure: figure.name == _CHARIOT_MAP))
    if evaluator is None:
        notes = ("There is neither an object in the dataset nor a prediction: nothing to measure.",)
        return Measures(figures=figures, notes=notes)

    def measure_slice(indexes: Sequence[int]) -> Iterable[float | None]:
        metrics = _object_metrics([comparisons[index] for index in indexes], labels, [confidence])
        return [figure.value for figure in metrics.figures(confidence)]

    notes = [f"{skipped} findings inside ignored objects were left out"] if skipped else []
    if len(results) < _FEW_IMAGES:
        notes.append(
            f"Figures of objects have no interval. They are of {counted(len(results), 'image')}: differences of a few"
            f" points may be chance below about {_FEW_IMAGES}."
        )
    slice_table = slice_tables(results, slices, ("images", *names), measure_slice)
    return Measures(
        figures=figures,
        tables=(_classes(overall, confidence), _ious(overall), *slice_table),
        charts=_charts(overall),
        confusion=confusion_matrix(evaluator, comparisons, confidence),
        mistakes=list_mistakes(evaluator, comparisons, labels, confidence),
        notes=tuple(notes),
    )


class _ObjectMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of a dataset or of a slice: `coco` of the labels that have objects, `valor` of all labels."""

    labels: Sequence[str]
    coco: CocoMetrics
    valor: ValorMetrics

    def rates(self, iou: float, score: float, labels: Sequence[str] | None = None) -> tuple[float | None, ...]:
        """Return precision, recall and F1 of all predictions of `labels`; None for a division by zero."""
        right, wrong, missed = self.valor.totals(labels or self.labels, iou, score)
        precision = right / (right + wrong) if right + wrong else None
        recall = right / (right + missed) if right + missed else None
        f1 = 2 * right / (2 * right + wrong + missed) if right + wrong + missed else None
        return precision, recall, f1

    def figures(self, confidence: float) -> tuple[Figure, ...]:
        precision, recall, f1 = self.rates(IOUS[0], confidence)
        thresholds = f"IoU 0.5, score {confidence:g}"
        rows = (
            ("map_coco", "COCO's AP, IoU 0.5 to 0.95", self.coco.map()),
            ("ap50", "COCO's AP, IoU 0.5", self.coco.map(0.5)),
            (_CHARIOT_MAP, "Chariot's mAP, IoU 0.5 to 0.95: compare it with map_coco, not with ap50", self.valor.map),
            ("precision", f"precision, {thresholds}", precision),
            ("recall", f"recall, {thresholds}", recall),
            ("f1", f"F1, {thresholds}", f1),
            ("ap75", "COCO's AP, IoU 0.75", self.coco.map(0.75)),
            ("ar", "COCO's AR, IoU 0.5 to 0.95", float(self.coco.recall.mean()) if self.coco.labels else None),
        )
        return tuple(Figure(name=name, title=title, value=value) for name, title, value in rows)


def _object_metrics(
    comparisons: Sequence[ImageComparison], labels: Sequence[str], scores: Sequence[float]
) -> _ObjectMetrics:
    return _ObjectMetrics(labels=labels, coco=coco_metrics(comparisons), valor=valor_metrics(comparisons, scores))


def _classes(metrics: _ObjectMetrics, confidence: float) -> Table:
    """Return a row for each label with objects, and one row for all other labels of the dataset that were found."""
    averages = [metrics.coco.ap(), metrics.coco.ap(0.5), metrics.coco.ap(0.75), metrics.coco.recall.mean(axis=0)]
    rows: list[_Row] = []
    for index, label in enumerate(metrics.coco.labels):
        right, _, missed = metrics.valor.totals([label], IOUS[0], 0.0)
        rates = metrics.rates(IOUS[0], confidence, [label])
        rows.append((label, right + missed, *(float(average[index]) for average in averages), *rates))
    others = [label for label in metrics.labels if label not in metrics.coco.labels]
    found = [label for label in others if metrics.valor.totals([label], IOUS[0], 0.0)[1]]
    if found:
        name = found[0] if len(found) == 1 else f"{len(found)} classes without objects"
        rows.append((name, 0, None, None, None, None, *metrics.rates(IOUS[0], confidence, found)))
    columns = ("class", "objects", "AP", "AP50", "AP75", "AR", "precision", "recall", "F1")
    title = f"Classes; precision, recall and F1 at IoU 0.5, score {confidence:g}"
    return Table(title=title, columns=columns, rows=tuple(rows), printed=False)


def _ious(metrics: _ObjectMetrics) -> Table:
    best = [max((metrics.rates(iou, score)[2] or 0.0, -score) for score in _SCORES) for iou in IOUS]
    rows = tuple((f"{iou:g}", metrics.coco.map(iou), f1, -score) for iou, (f1, score) in zip(IOUS, best, strict=True))
    return Table(title="IoU thresholds", columns=("IoU", "AP", "best F1", "at a score of"), rows=rows, printed=False)


def _charts(metrics: _ObjectMetrics) -> tuple[Chart, ...]:
    coco, valor = metrics.coco, metrics.valor
    recalls = tuple(step / 100 for step in range(101))
    frequent = sorted(coco.labels, key=lambda label: -sum(valor.totals([label], IOUS[0], 0.0)[::2]))[:_MAX_LINES]
    lines = [("all classes", coco.curves[0].mean(axis=1))] if frequent else []
    lines += [(label, coco.curves[0, :, coco.labels.index(label)]) for label in frequent]
    rates = [metrics.rates(IOUS[0], score) for score in _SCORES]
    curves = tuple(ChartLine(name=name, xs=recalls, ys=tuple(curve.tolist())) for name, curve in lines)
    thresholds = tuple(
        ChartLine(name=name, xs=_SCORES, ys=tuple(rate or 0.0 for rate in values))
        for name, values in zip(("precision", "recall", "F1"), zip(*rates, strict=True), strict=True)
    )
    return (
        Chart(title="Precision over recall, IoU 0.5", x="recall", y="precision", lines=curves),
        Chart(title="Score thresholds, IoU 0.5", x="score threshold", y="", lines=thresholds),
    )
