"""Measure answers against a dataset, and build a report."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from app.evaluation.answers import Answered, read_records, task_of
from app.evaluation.classes import measure_classes
from app.evaluation.collecting import Asker
from app.evaluation.dataset import Dataset, Item
from app.evaluation.extras import EvaluationError
from app.evaluation.journal import Records
from app.evaluation.label_map import LabelMap, mapped, unknown_labels
from app.evaluation.objects import measure_objects
from app.evaluation.pixels import measure_pixels
from app.evaluation.report import Measures, Report
from app.evaluation.texts import measure_texts
from tasks.task import TaskType

__all__ = ("ANSWERED", "check_figures", "check_slices", "checked", "evaluated", "task_to_measure")

ANSWERED = "answered"
"""Name of the figure for the share of answered images."""
_MAX_LISTED = 10
_MAX_SLICES = 200


def task_to_measure(dataset: Dataset, records: Mapping[str, Records]) -> TaskType:
    """Return the task of the answers, or the dataset's first task if there are no predictions.

    Raises:
        EvaluationError: when the dataset has no labels for the task, or the answers are of several tasks.
    """
    tasks = {task for answer in records.values() if (task := task_of(answer)) is not None}
    if len(tasks) > 1:
        raise EvaluationError(f"Expected answers of one task, got {' and '.join(sorted(tasks))}")
    task = next(iter(tasks), dataset.tasks[0])
    if task not in dataset.tasks:
        could = " or ".join(dataset.tasks)
        raise EvaluationError(f"{dataset.path} ({dataset.format}) has labels of {could}; the answers are of {task}")
    return task


def checked(dataset: Dataset, ask: Asker) -> Asker:
    """Wrap `ask` to raise an error at the first answer of a task without labels in the dataset."""

    def asked(item: Item, data: bytes) -> Records:
        records = ask(item, data)
        task_to_measure(dataset, {item.id: records})
        return records

    return asked


def evaluated(
    dataset: Dataset,
    records: Mapping[str, Records],
    failures: Mapping[str, str],
    source: str,
    *,
    confidence: float = 0.5,
    slices: Sequence[str] = (),
    names: LabelMap | None = None,
    notes: Sequence[str] = (),
    progress: Callable[[int], None] = lambda _: None,
) -> Report:
    """Measure `records` against `dataset`.

    Args:
        dataset: the labelled dataset.
        records: records by the id of the item.
        failures: reasons for items without an answer.
        source: a readable description of the model.
        confidence: predictions with a lower score count in average precision only.
        slices: keys of metadata.
        names: the dataset's labels by the model's labels.
        notes: additional notes for the report.
        progress: called with the number of compared items.

    Raises:
        EvaluationError: when answers or slices do not match the dataset, or the extra is not installed.
    """
    check_slices(dataset, slices)
    task = task_to_measure(dataset, records)
    answered, failed = _read(dataset, records, task)
    if names:
        answered = [mapped(result, names) for result in answered]
    if failed and not answered:
        name, reason = next(iter(failed.items()))
        raise EvaluationError(f"Not one of {len(failed)} answers can be measured; {name}: {reason}")
    failed = {**failures, **failed}
    remarks = [*dataset.notes, *notes]
    if failed:
        remarks.append(f"{len(failed)} of {len(dataset.items)} were not answered, and are in none of the figures.")
    if task is not TaskType.IMAGE_TEXT_TO_TEXT:
        chosen = [_best_only(result) for result in answered] if task is TaskType.IMAGE_CLASSIFICATION else answered
        remarks += _about_labels(chosen, dataset.labels)
    measures = _measured(answered, dataset, task, confidence, slices, progress)
    return Report(
        task=task,
        dataset=str(dataset.path),
        format=dataset.format,
        source=source,
        images=len(dataset.items),
        measured=len(answered),
        failures=failed,
        measures=measures,
        notes=[*remarks, *measures.notes],
    )


def _measured(
    answered: Sequence[Answered],
    dataset: Dataset,
    task: TaskType,
    confidence: float,
    slices: Sequence[str],
    progress: Callable[[int], None],
) -> Measures:
    if task is TaskType.IMAGE_TEXT_TO_TEXT:
        return measure_texts(answered, slices)
    if task is TaskType.IMAGE_CLASSIFICATION:
        return measure_classes(answered, slices)
    measures = measure_objects(answered, task, confidence, slices, progress)
    if task is not TaskType.IMAGE_SEGMENTATION:
        return measures
    figures, table, notes = measure_pixels(answered, dataset.labels, confidence)
    tables = (*measures.tables, *([table] if table else []))
    return msgspec.structs.replace(
        measures, figures=(*measures.figures, *figures), tables=tables, notes=(*measures.notes, *notes)
    )


def _read(dataset: Dataset, records: Mapping[str, Records], task: TaskType) -> tuple[list[Answered], dict[str, str]]:
    answered: list[Answered] = []
    failed: dict[str, str] = {}
    for item in dataset.items:
        if item.id in records:
            try:
                answered.append(read_records(records[item.id], item, task))
            except ValueError as error:
                failed[item.id] = f"The answer cannot be read: {error}"
    return answered, failed


def _best_only(answered: Answered) -> Answered:
    best = sorted(answered.found, key=lambda finding: -finding.score)[:1]
    return msgspec.structs.replace(answered, found=tuple(best))


def _about_labels(answered: Sequence[Answered], labels: Sequence[str]) -> list[str]:
    unknown = unknown_labels(answered, labels)
    found = {one.label for result in answered for one in result.found}
    if not unknown:
        return []
    some = ", ".join(f"{label} ({count})" for label, count in list(unknown.items())[:_MAX_LISTED])
    more = f" and {len(unknown) - _MAX_LISTED} more" if len(unknown) > _MAX_LISTED else ""
    lines = [
        f"Labels that the dataset does not have were found: {some}{more}. --label-map gives them the dataset's names."
    ]
    if found and len(unknown) == len(found):
        own = ", ".join(labels[:_MAX_LISTED])
        lines.insert(0, f"NOT ONE label that was found is one of the dataset's ({own}): every finding counts as wrong.")
    return lines


def check_figures(dataset: Dataset, names: Iterable[str]) -> None:
    """Check before the first request that the figures `names` exist.

    Raises:
        EvaluationError: when no task of the dataset has a figure of that name, or the extra is not installed.
    """
    figures = [
        figure for task in dataset.tasks for figure in _measured((), dataset, task, 0.5, (), lambda _: None).figures
    ]
    known = [*(figure.name for figure in figures), ANSWERED]
    for name in names:
        if name not in known:
            raise EvaluationError(
                f"--fail-under: there is no figure {name}; there is {', '.join(dict.fromkeys(known))}"
            )


def check_slices(dataset: Dataset, slices: Sequence[str]) -> None:
    """Check before the first request that the dataset can be sliced by the keys `slices`.

    Raises:
        EvaluationError: when a key is missing, or has too many values.
    """
    keys = {key for item in dataset.items for key in item.metadata}
    for key in slices:
        if key not in keys:
            has = ", ".join(sorted(keys)) or "none"
            raise EvaluationError(f"--slice: no image has metadata called {key!r}; there is {has}")
        values = {item.metadata.get(key) for item in dataset.items}
        if len(values) > _MAX_SLICES:
            raise EvaluationError(f"--slice: Expected at most {_MAX_SLICES} values of {key!r}, got {len(values)}")
