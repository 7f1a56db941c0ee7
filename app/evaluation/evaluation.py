"""From a dataset and answers to a report."""

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
"""The share of images that were, where a figure is named."""
_TOLD = 10
_MOST_SLICES = 200


def task_to_measure(dataset: Dataset, records: Mapping[str, Records]) -> TaskType:
    """The task that the answers are of, which the dataset has to have labels for; its own where nothing was found.

    Raises:
        EvaluationError: when the two do not go together, or answers are of several tasks.
    """
    tasks = {task for each in records.values() if (task := task_of(each)) is not None}
    if len(tasks) > 1:
        raise EvaluationError(f"Expected answers of one task, got {' and '.join(sorted(tasks))}")
    task = next(iter(tasks), dataset.tasks[0])
    if task not in dataset.tasks:
        could = " or ".join(dataset.tasks)
        raise EvaluationError(f"{dataset.path} ({dataset.format}) has labels of {could}; the answers are of {task}")
    return task


def checked(dataset: Dataset, ask: Asker) -> Asker:
    """What asks, and stops at the first answer that is of a task that the dataset has no labels for."""

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
        dataset: what is true.
        records: what was answered, by the id of the item.
        failures: why items have no answer.
        source: who answered, in words.
        confidence: findings that score lower count in average precision only.
        slices: keys of metadata.
        names: the dataset's labels by the model's.
        notes: what else has to be said.
        progress: is told how many items were compared.

    Raises:
        EvaluationError: when answers or slices do not go with the dataset, or the extra is not installed.
    """
    check_slices(dataset, slices)
    task = task_to_measure(dataset, records)
    answered, failed = _read(dataset, records, task)
    if names:
        answered = [mapped(each, names) for each in answered]
    if failed and not answered:
        name, reason = next(iter(failed.items()))
        raise EvaluationError(f"Not one of {len(failed)} answers can be measured; {name}: {reason}")
    failed = {**failures, **failed}
    told = [*dataset.notes, *notes]
    if failed:
        told.append(f"{len(failed)} of {len(dataset.items)} were not answered, and are in none of the figures.")
    if task is not TaskType.IMAGE_TEXT_TO_TEXT:
        chosen = [_best_only(each) for each in answered] if task is TaskType.IMAGE_CLASSIFICATION else answered
        told += _about_labels(chosen, dataset.labels)
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
        notes=[*told, *measures.notes],
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
    best = sorted(answered.found, key=lambda each: -each.score)[:1]
    return msgspec.structs.replace(answered, found=tuple(best))


def _about_labels(answered: Sequence[Answered], labels: Sequence[str]) -> list[str]:
    unknown = unknown_labels(answered, labels)
    found = {one.label for each in answered for one in each.found}
    if not unknown:
        return []
    some = ", ".join(f"{label} ({count})" for label, count in list(unknown.items())[:_TOLD])
    more = f" and {len(unknown) - _TOLD} more" if len(unknown) > _TOLD else ""
    said = [
        f"Labels that the dataset does not have were found: {some}{more}. --label-map gives them the dataset's names."
    ]
    if found and len(unknown) == len(found):
        own = ", ".join(labels[:_TOLD])
        said.insert(0, f"NOT ONE label that was found is one of the dataset's ({own}): every finding counts as wrong.")
    return said


def check_figures(dataset: Dataset, names: Iterable[str]) -> None:
    """See that there may be figures called `names`, before anybody is asked.

    Raises:
        EvaluationError: when no task that the dataset has labels for has one of them, or the extra is not installed.
    """
    figures = [
        figure for task in dataset.tasks for figure in _measured((), dataset, task, 0.5, (), lambda _: None).figures
    ]
    known = [*(each.name for each in figures), ANSWERED]
    for name in names:
        if name not in known:
            raise EvaluationError(
                f"--fail-under: there is no figure {name}; there is {', '.join(dict.fromkeys(known))}"
            )


def check_slices(dataset: Dataset, slices: Sequence[str]) -> None:
    """See that the dataset can be sliced by the keys `slices`, before anybody is asked.

    Raises:
        EvaluationError: when it has no such metadata, or too many values of it.
    """
    keys = {key for item in dataset.items for key in item.metadata}
    for key in slices:
        if key not in keys:
            has = ", ".join(sorted(keys)) or "none"
            raise EvaluationError(f"--slice: no image has metadata called {key!r}; there is {has}")
        values = {item.metadata.get(key) for item in dataset.items}
        if len(values) > _MOST_SLICES:
            raise EvaluationError(f"--slice: Expected at most {_MOST_SLICES} values of {key!r}, got {len(values)}")
