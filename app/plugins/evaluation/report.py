"""The results of an evaluation, the same for every task, and the parts that other plugins add."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from app.core.plugins import registry
from app.core.settings.model import ModelSource
from app.plugins.evaluation.answers import EvaluatedItem
from app.plugins.evaluation.dataset import Dataset
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


class EvaluationRun(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a report was made of.

    `results` are the answers that could be read, with the model's labels; `is_mapped` says whether a map gives them the
    dataset's. `source` is the model, if it ran in this process.
    """

    dataset: Dataset
    results: Sequence[EvaluatedItem]
    is_mapped: bool
    source: ModelSource | None


class ReportPart(Protocol):
    """Adds to reports if the options of its plugin ask for it. Both methods raise `EvaluationError` for the user.

    Attributes:
        file_name: the file that it writes into the folder of the model. No answer depends on it until the settings of
            the model use it.
    """

    @property
    def file_name(self) -> str: ...

    def is_wanted(self, source: ModelSource | None, /) -> bool:
        """Return whether to call `extend`; check before the first request what it needs. `source`: `EvaluationRun`."""
        ...

    def extend(self, report: EvaluationReport, run: EvaluationRun, /) -> EvaluationReport:
        """Return the report with the part."""
        ...


def wanted_parts(source: ModelSource | None) -> Sequence[ReportPart]:
    """Return the parts that the options of the command ask for; raise `EvaluationError` if one needs something else."""
    parts: Sequence[ReportPart] = registry().extensions("evaluation.reports")
    return [part for part in parts if part.is_wanted(source)]
