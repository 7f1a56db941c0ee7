"""The console that commands print to, tables, progress bars, and the end of a command that failed."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import NoReturn

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

__all__ = ("FAILED", "console", "error_console", "progress", "stop", "table")

FAILED = 2
"""Exit status of a command that could not do its work."""

_FALLBACK_WIDTH = 160


def console() -> Console:
    """Return a console on standard output, as wide as the terminal; wide enough for tables without a terminal."""
    new_console = Console(highlight=False, emoji=False)
    if not new_console.is_terminal:
        new_console.width = _FALLBACK_WIDTH
    return new_console


def error_console() -> Console:
    """Return a console on standard error."""
    return Console(stderr=True)


def table(*headings: str, title: str | None = None) -> Table:
    """Return a table. In a narrow terminal, its cells continue on the next line and keep all text."""
    new_table = Table(title=title, title_justify="left")
    for heading in headings:
        new_table.add_column(heading, overflow="fold")
    return new_table


def stop(reason: object, status: int = FAILED) -> NoReturn:
    """Print the reason on standard error and exit."""
    sys.stderr.write(f"charioteer: {reason}\n")
    sys.exit(status)


class _RateColumn(ProgressColumn):
    """Steps per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f}/s" if task.speed else "", style="progress.data.speed")


@contextmanager
def progress(title: str, total: int) -> Generator[Callable[[float], None]]:
    """Show a bar with rate and remaining time on standard error, if it is a terminal; yield a call that advances it."""
    stderr = error_console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _RateColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        task = bar.add_task(title, total=total)
        yield lambda steps: bar.advance(task, steps)
