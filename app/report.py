"""Show the result of a command as text, as values for JSON, or as one HTML file.

It imports nothing of the server, so that commands, plugins and the checker of other engines can use it.
"""

import base64
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table as TerminalTable

from app import __version__

if TYPE_CHECKING:
    from jinja2 import Template

_COLOURS = ("#c63939", "#c6a339", "#80c639", "#39c65c", "#39c6c6", "#395cc6", "#7f39c6", "#c639a3",
            "#962c2c", "#967c2c", "#61962c", "#2c9646", "#2c9696", "#2c4696", "#612c96", "#962c7c")  # fmt: skip
"""Eight hues of the page in two middle lightnesses, which are readable on white and on black."""
_STYLES = {"good": "green", "bad": "red", "warning": "yellow", "dim": "dim"}
_SMALLEST_SHARE, _LARGEST_SHARE = 1e-4, 10
_LETTERS = 24
"""Width of an image divided by the height of its labels."""
_LETTER_WIDTH = 0.65
"""Maximum width of a letter, as a share of its height."""


class Mark(msgspec.Struct, frozen=True):
    """A text with a meaning, which has a colour."""

    text: str
    kind: Literal["good", "bad", "warning", "dim"]


Cell = str | float | int | None | Mark


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One number of the result, with its name in options and JSON. None is undefined."""

    name: str
    title: str
    value: float | None


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table; the first cell of a row names its subject. `printed` says whether text shows it, too.

    In a `matrix`, numbers are coloured by their share of the row. In columns other than the row's they are wrong.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    printed: bool = True
    matrix: bool = False


class ChartLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a chart; `filled` down to the axis."""

    name: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    filled: bool = False


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A line chart with 0..1 on both axes, or with `x_range` on the x axis."""

    title: str
    x: str
    y: str
    lines: tuple[ChartLine, ...]
    note: str = ""
    x_range: tuple[float, float] = (0.0, 1.0)


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """A shape over an image: closed rings of x and y in its pixels, with a label."""

    kind: Literal["right", "wrong", "missed"]
    label: str
    rings: Sequence[Sequence[tuple[float, float]]]


class AnnotatedImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image, as a small JPEG, and outlines in the pixels of the whole image of `width` x `height`.

    Without an image, the report has only the name and the description.
    """

    name: str
    description: str
    jpeg: bytes | None = None
    width: int = 0
    height: int = 0
    outlines: Sequence[Outline] = ()


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a command found. `summary` are sentences below the title, `notes` sentences at the end."""

    title: str
    summary: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    images: Sequence[AnnotatedImage] = ()
    images_title: str = ""
    images_note: str = ""
    notes: Sequence[str | Mark] = ()


def format_cell(cell: Cell) -> str:
    """Format a cell: four digits for a share, two for other numbers, a dash for an undefined value."""
    if isinstance(cell, Mark):
        return cell.text
    if cell is None:
        return "-"
    if not isinstance(cell, float):
        return str(cell)
    if 0 < abs(cell) < _SMALLEST_SHARE:
        return f"{cell:.1e}"
    return f"{cell:.4f}" if abs(cell) < _LARGEST_SHARE else f"{cell:.2f}"


def printable(text: str) -> str:
    """Return a text for a terminal without markup, and with control characters as visible escapes."""
    return escape("".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text))


def print_report(report: Report, console: Console, *, max_figures: int | None = None) -> None:
    """Print title, summary, the first figures, the tables for text, and notes."""
    console.print(printable(report.title), soft_wrap=True)
    for sentence in report.summary:
        console.print(printable(sentence))
    if report.figures:
        rows = tuple((figure.name, figure.value, figure.title) for figure in report.figures[:max_figures])
        print_table(Table(title="", columns=("figure", "value", "meaning"), rows=rows), console)
    for table in report.tables:
        if table.printed:
            print_table(table, console)
    for note in report.notes:
        console.print(f"- {_styled(note)}", soft_wrap=True)


def print_table(table: Table, console: Console) -> None:
    """Print a table. In a narrow terminal, its texts continue on the next line; numbers do not."""
    shown = TerminalTable(title=printable(table.title) or None, title_justify="left", min_width=len(table.title))
    for index, heading in enumerate(table.columns):
        is_number = index > 0 and all(_is_number(row[index]) for row in table.rows)
        shown.add_column(printable(heading), overflow="fold", justify="right" if is_number else "left",
                         no_wrap=is_number)  # fmt: skip
    for row in table.rows:
        shown.add_row(*map(_styled, row))
    console.print(shown)
    if table.note:
        console.print(printable(table.note))


def to_json(values: object) -> bytes:
    """Return indented JSON."""
    return msgspec.json.format(msgspec.json.encode(values))


def plain_tables(tables: Sequence[Table]) -> Sequence[Mapping[str, object]]:
    """Return tables with rows by column, for JSON."""

    def plain(row: Sequence[Cell]) -> Sequence[object]:
        return [cell.text if isinstance(cell, Mark) else cell for cell in row]

    return [
        {"title": table.title, "rows": [dict(zip(table.columns, plain(row), strict=True)) for row in table.rows]}
        for table in tables
    ]


def html_report(report: Report) -> bytes:
    """Return a self-contained page without scripts. All texts are escaped."""
    return _template().render(report=report, version=__version__).encode()


@cache
def _template() -> "Template":
    # Import late: most commands write no page.
    from jinja2 import Environment, StrictUndefined

    environment: Any = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.globals.update(colours=_COLOURS, zip=zip, draw=_draw)
    environment.filters.update(cell=format_cell, data=_in_base64)
    environment.tests.update(mark=_is_mark, figure=_is_number)
    return environment.from_string(Path(__file__).with_name("report.html.jinja").read_text(encoding="utf-8"))


def _in_base64(jpeg: bytes) -> str:
    return base64.b64encode(jpeg).decode()


def _is_mark(cell: Cell) -> bool:
    return isinstance(cell, Mark)


def _is_number(cell: Cell) -> bool:
    return cell is None or isinstance(cell, int | float)


def _styled(cell: Cell) -> str:
    text = printable(format_cell(cell))
    return f"[{_STYLES[cell.kind]}]{text}[/]" if isinstance(cell, Mark) else text


def _draw(image: AnnotatedImage) -> list[dict[str, Any]]:
    """Return the SVG paths of the outlines with an area, and the places of their labels."""
    letter = image.width / _LETTERS
    drawn: list[dict[str, Any]] = []
    for outline in image.outlines:
        rings = [ring for ring in outline.rings if ring]
        if not rings:
            continue
        path = "".join("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in ring) + "Z" for ring in rings)
        if outline.kind == "missed":
            # Place the label below, because a prediction of the same object has its label above.
            left, bottom = max(rings[0], key=lambda point: (point[1], -point[0]))
            y = bottom + 1.25 * letter
        else:
            left, top = min(rings[0], key=lambda point: (point[1], point[0]))
            y = top - letter / 4
        x = max(0.0, min(left, image.width - _LETTER_WIDTH * letter * len(outline.label)))
        y = min(max(letter, y), image.height - letter / 4)
        drawn.append({"kind": outline.kind, "path": path, "x": x, "y": y, "letter": letter, "label": outline.label})
    return drawn
