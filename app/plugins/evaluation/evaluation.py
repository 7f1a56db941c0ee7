"""Measure answers against a dataset, and build a report."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

import msgspec

from app.clients.protocol import Records
from app.core.engine.error_text import list_choices
from app.plugins.evaluation.answers import EvaluatedItem, infer_task, parse_records
from app.plugins.evaluation.collection import CollectedAnswers, InferenceClient
from app.plugins.evaluation.dataset import Dataset, EvaluationError, Item
from app.plugins.evaluation.datasets.files import read_json
from app.plugins.evaluation.metrics.classes import measure_classes
from app.plugins.evaluation.metrics.objects import measure_objects
from app.plugins.evaluation.metrics.pixels import measure_pixels
from app.plugins.evaluation.metrics.texts import measure_texts
from app.plugins.evaluation.report import EvaluationReport, Measures
from app.report import Figure
from tasks.task import TaskType
from tasks.vision.contours import MAX_PIXELS

ANSWERED = "answered"
"""Name of the figure for the share of answered images."""
_MAX_LISTED = 10
_MAX_SLICES = 200

LabelMap = Mapping[str, str | None]
"""The dataset's label by the model's label; None drops a class of the model."""


def task_to_measure(dataset: Dataset, records: Mapping[str, Records]) -> TaskType:
    """Return the task of the answers, or the dataset's first task if there are no predictions.

    Raise EvaluationError when the dataset has no labels for the task, or the answers are of several tasks or of one
    that cannot be measured.
    """
    try:
        tasks = {task for answer in records.values() if (task := infer_task(answer)) is not None}
    except ValueError as error:
        raise EvaluationError(str(error)) from None
    if len(tasks) > 1:
        raise EvaluationError(f"Expected answers of one task, got {' and '.join(sorted(tasks))}")
    task = next(iter(tasks), dataset.tasks[0])
    if task not in dataset.tasks:
        supported = " or ".join(dataset.tasks)
        raise EvaluationError(f"{dataset.path} ({dataset.format}) has labels of {supported}; the answers are of {task}")
    return task


def check_task(dataset: Dataset, client: InferenceClient) -> InferenceClient:
    """Wrap `client` to raise an error at the first answer of a task without labels in the dataset."""

    def request(item: Item, data: bytes) -> Records:
        records = client(item, data)
        task_to_measure(dataset, {item.id: records})
        return records

    return request


def evaluate_records(
    dataset: Dataset,
    collected: CollectedAnswers,
    *,
    confidence: float = 0.5,
    slices: Sequence[str] = (),
    label_map: LabelMap | None = None,
    progress: Callable[[int], None] = lambda _: None,
    figures: tuple[Figure, ...] = (),
) -> EvaluationReport:
    """Measure answers against `dataset`.

    Predictions with a score below `confidence` count in average precision only. `slices` are keys of metadata,
    `label_map` has the dataset's labels by the model's. `progress` is called with the number of compared items.
    `figures` are added to the report. Raise EvaluationError when answers do not match the dataset, or the extra is not
    installed.
    """
    task = task_to_measure(dataset, collected.records)
    results, failed = parse_answers(dataset, collected.records, task)
    if label_map:
        results = [map_labels(result, label_map) for result in results]
    if failed and not results:
        name, reason = next(iter(failed.items()))
        raise EvaluationError(f"Not one of {len(failed)} answers can be measured; {name}: {reason}")
    failed = {**collected.failures, **failed}
    remarks = [*dataset.notes, *collected.notes]
    if failed:
        remarks.append(f"{len(failed)} of {len(dataset.items)} were not answered, and are in none of the figures.")
    if task.returns != "texts":
        remarks += _label_remarks(results, dataset.labels, task)
    measures = _measure(results, dataset, task, confidence, slices, progress)
    measures = msgspec.structs.replace(measures, figures=(*figures, *measures.figures))
    return EvaluationReport(
        task=task,
        dataset=str(dataset.path),
        format=dataset.format,
        source=collected.source,
        images=len(dataset.items),
        measured=len(results),
        failures=failed,
        measures=measures,
        notes=[*remarks, *measures.notes],
    )


def check_figures(dataset: Dataset, names: Iterable[str], added: Sequence[Figure] = ()) -> None:
    """Check before the first request that the figures `names` exist, of the dataset's tasks or `added`.

    Raise EvaluationError when no task of the dataset has a figure of that name, or the extra is not installed.
    """
    measured = (_measure((), dataset, task, 0.5, (), lambda _: None).figures for task in dataset.tasks)
    known = dict.fromkeys([*(figure.name for figure in (*chain(*measured), *added)), ANSWERED])
    for name in names:
        if name not in known:
            raise EvaluationError(f"--fail-under: there is no figure {name}; there is {', '.join(known)}")


def check_slices(dataset: Dataset, slices: Sequence[str]) -> None:
    """Raise `EvaluationError` before the first request if a key of `slices` is missing, or has too many values."""
    keys = {key for item in dataset.items for key in item.metadata}
    for key in slices:
        if key not in keys:
            has = ", ".join(sorted(keys)) or "none"
            raise EvaluationError(f"--slice: no image has metadata called {key!r}; there is {has}")
        values = {item.metadata.get(key) for item in dataset.items}
        if len(values) > _MAX_SLICES:
            raise EvaluationError(f"--slice: Expected at most {_MAX_SLICES} values of {key!r}, got {len(values)}")


def read_label_map(path: Path, labels: Sequence[str]) -> LabelMap:
    """Read a JSON object from the model's labels to the dataset's labels or null; reject others (EvaluationError)."""
    try:
        label_map = msgspec.convert(read_json(path), dict[str, str | None])
    except msgspec.ValidationError as error:
        raise EvaluationError(f"{path}: Expected the dataset's label, or null, by the model's: {error}") from None
    unknown = sorted({label for label in label_map.values() if label is not None} - set(labels))
    if unknown:
        listed = ", ".join(labels[:20]) + (" ..." if len(labels) > 20 else "")
        raise EvaluationError(f"{path}: {unknown[0]!r} is not a label of the dataset; it has {listed}")
    return label_map


def map_labels(result: EvaluatedItem, label_map: LabelMap) -> EvaluatedItem:
    """Return `result` with the dataset's labels. Unmapped labels stay; labels mapped to None are dropped."""
    labelled = ((prediction, label_map.get(prediction.label, prediction.label)) for prediction in result.predictions)
    predictions = tuple(
        msgspec.structs.replace(prediction, label=label) for prediction, label in labelled if label is not None
    )
    return msgspec.structs.replace(result, predictions=predictions)


def _measure(
    results: Sequence[EvaluatedItem],
    dataset: Dataset,
    task: TaskType,
    confidence: float,
    slices: Sequence[str],
    progress: Callable[[int], None],
) -> Measures:
    if task.returns == "texts":
        return measure_texts(results, slices)
    if task.returns == "classes":
        return measure_classes(results, slices)
    if task.geometry != "contour":
        return measure_objects(results, dataset.labels, task, confidence, slices, progress)
    drawable = [result for result in results if result.item.width * result.item.height <= MAX_PIXELS]
    measures = measure_objects(drawable, dataset.labels, task, confidence, slices, progress)
    pixels = measure_pixels(drawable, dataset.labels, confidence)
    large = len(results) - len(drawable)
    notes = (f"{large} images of more than {MAX_PIXELS} pixels are in no figure.",) if large else ()
    return msgspec.structs.replace(
        measures,
        figures=(*measures.figures[:3], *pixels.figures, *measures.figures[3:]),
        tables=(*measures.tables, *pixels.tables),
        notes=(*notes, *measures.notes),
    )


def parse_answers(
    dataset: Dataset, records: Mapping[str, Records], task: TaskType
) -> tuple[list[EvaluatedItem], dict[str, str]]:
    """Return the answers that can be read, and the reason for each other one by the id of its item."""
    results: list[EvaluatedItem] = []
    failed: dict[str, str] = {}
    for item in dataset.items:
        if item.id in records:
            try:
                results.append(parse_records(records[item.id], item, task))
            except ValueError as error:
                failed[item.id] = f"The answer cannot be read: {error}"
    return results, failed


def _label_remarks(results: Sequence[EvaluatedItem], labels: Sequence[str], task: TaskType) -> list[str]:
    """Return one sentence about the predicted labels, of classes the best ones, that the dataset does not have."""
    best = 1 if task.returns == "classes" else None
    counts = Counter(
        prediction.label
        for result in results
        for prediction in sorted(result.predictions, key=lambda prediction: -prediction.score)[:best]
    )
    unknown = {label: count for label, count in counts.most_common() if label not in labels}
    if not unknown:
        return []
    listed = list_choices(f"{label} ({count})" for label, count in unknown.items())
    effect = "count as wrong" if task.returns == "classes" else "count in mAPAveragedOverIOUs only, as 0"
    start = f"Found labels that the dataset does not have {effect}: {listed}."
    if len(unknown) == len(counts):
        start = f"The model and the dataset share no label; the dataset has {', '.join(labels[:_MAX_LISTED])}. {start}"
    return [f"{start} --label-map gives them the dataset's names."]
