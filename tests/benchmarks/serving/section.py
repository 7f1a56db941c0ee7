"""Format the results of a measurement."""

import textwrap
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

_WIDTH = 100

Cell: TypeAlias = str | float | int | None


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A table, and about it: what was measured, and how to read it."""

    title: str
    about: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


def as_markdown(section: Section) -> str:
    lines = [f"## {section.title}", "", *textwrap.wrap(section.about, _WIDTH, break_on_hyphens=False), ""]
    lines += [_row(section.columns), _row(["---"] * len(section.columns))]
    lines += [_row([_shown(cell) for cell in row]) for row in section.rows]
    return "\n".join([*lines, ""])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.2f}" if cell < 100 else f"{cell:,.0f}"
    return f"{cell:,}" if isinstance(cell, int) else cell
