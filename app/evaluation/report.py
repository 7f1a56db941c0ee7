"""What an evaluation found, the same for every task: figures, tables, charts, mistakes."""

from collections.abc import Mapping, Sequence

import msgspec

from app.evaluation.answers import Answered
from tasks.task import TaskType

__all__ = ("Chart", "Confusion", "Figure", "Line", "Measures", "Mistake", "Report", "Table")


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One number. None where it cannot be told.

    Attributes:
        name: how options and programs call it.
        title: how people call it.
        value: higher is better.
    """

    name: str
    title: str
    value: float | None


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers in rows, each behind what it is about."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float | int | None, ...], ...]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a chart."""

    name: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """Lines over 0..1 on both axes."""

    title: str
    x: str
    y: str
    lines: tuple[Line, ...]


class Confusion(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken for what.

    Attributes:
        labels: of rows (truth) and columns (found).
        counts: ``counts[truth][found]``.
        missed: of each label, what was found by nothing.
        extra: of each label, what was found where there is nothing.
        examples: ids of images by ``"truth -> found"``, a few for each; nothing is an empty name.
    """

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    missed: tuple[int, ...] = ()
    extra: tuple[int, ...] = ()
    examples: Mapping[str, tuple[str, ...]] = {}


class Mistake(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one image.

    Attributes:
        answered: the image and the answer.
        badness: the more, the worse.
        why: in words.
        missed: places of `answered.item.objects` that were found by nothing.
        wrong: places of `answered.found` that are wrong.
        right: places of `answered.found` that are right.
    """

    answered: Answered
    badness: float
    why: str
    missed: tuple[int, ...] = ()
    wrong: tuple[int, ...] = ()
    right: tuple[int, ...] = ()


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """How well one task is done on one dataset."""

    figures: tuple[Figure, ...]
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    confusion: Confusion | None = None
    mistakes: tuple[Mistake, ...] = ()
    notes: tuple[str, ...] = ()


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluation.

    Attributes:
        task: what was measured.
        dataset: where the labels are.
        format: how they are written.
        source: who answered, in words.
        images: how many items the dataset has.
        measured: how many of them were answered.
        failures: why others were not, by the id of the item.
        measures: what was found.
        notes: sentences that the figures cannot be read without.
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
