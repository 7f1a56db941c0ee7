"""The results of an evaluation, the same for every task."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from app.plugins.evaluation.answers import EvaluatedItem
from app.report import Cell, Chart, Figure, Table
from tasks.task import TaskType


def figures_of(values: Mapping[str, float | None], titles: Mapping[str, str]) -> tuple[Figure, ...]:
    """Return a figure for each title, by its name; its value is None if `values` lacks it."""
    return tuple(Figure(name=name, title=title, value=values.get(name)) for name, title in titles.items())


def slice_tables(
    results: Sequence[EvaluatedItem],
    keys: Sequence[str],
    columns: Sequence[str],
    measure: Callable[[Sequence[int]], Iterable[float | None]],
) -> list[Table]:
    """Return a table of the results with each value, or ``(none)``, of each metadata key; none without keys.

    `measure` returns the values of the results with these indexes, for all `columns` but the first, their number.
    """
    rows: list[tuple[Cell, ...]] = []
    for key in keys:
        indexes = defaultdict[str, list[int]](list)
        for index, result in enumerate(results):
            indexes[result.item.metadata.get(key, "(none)")].append(index)
        rows += [(f"{key} = {value}", len(indexes[value]), *measure(indexes[value])) for value in sorted(indexes)]
    return [Table(title="Slices", columns=("slice", *columns), rows=tuple(rows))] if keys else []


class Confusion(msgspec.Struct, frozen=True, kw_only=True):
    """A confusion matrix: ``counts[truth][predicted]`` of the labels.

    Of objects, each label has a number of `missed` ones, and of `extra` predictions without an object. `examples` are a
    few image ids by ``"truth -> predicted"``; an empty name means no object.
    """

    labels: tuple[str, ...] = ()
    counts: tuple[tuple[int, ...], ...] = ()
    missed: tuple[int, ...] = ()
    extra: tuple[int, ...] = ()
    examples: Mapping[str, tuple[str, ...]] = {}


class Mistake(msgspec.Struct, frozen=True, kw_only=True):
    """The mistakes in one image. A higher severity is worse.

    `missed` are indexes of `result.item.objects`, `wrong` and `right` of `result.predictions`.
    """

    result: EvaluatedItem
    severity: float
    description: str
    missed: tuple[int, ...] = ()
    wrong: tuple[int, ...] = ()
    right: tuple[int, ...] = ()


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one task on one dataset. Higher figures are better; the terminal shows the first five."""

    figures: tuple[Figure, ...]
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    confusion: Confusion | None = None
    mistakes: tuple[Mistake, ...] = ()
    notes: tuple[str, ...] = ()


class EvaluationReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of an evaluation, with sentences required to interpret its figures.

    `source` is a readable description of the model. Of `images` items in the dataset, `measured` were answered;
    `failures` has the reasons for others by the id of the item.
    """

    task: TaskType
    dataset: str
    format: str
    source: str
    images: int
    measured: int
    failures: Mapping[str, str]
    measures: Measures
    notes: Sequence[str]
