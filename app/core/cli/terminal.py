"""The console that commands print to, tables, progress bars, checks of output files, and the end after a failure."""

import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from app.core.engine.error_text import printable_text, sentence_of
from app.core.settings.model import ModelError
from app.core.settings.server import SettingsError

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
    """Return a console on standard error. It keeps each line whole, so that paths can be copied."""
    return Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)


@contextmanager
def prints_to_stderr() -> Generator[None]:
    """Send to standard error what a model's code, or a process that it starts, prints: scripts read the results."""
    results = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(results, 1)
        os.close(results)


def printable(value: object) -> str:
    """Return the text of a value for a console: without markup, and with control characters as visible escapes."""
    return escape(printable_text(value))


def counted(number: int, noun: str) -> str:
    """Return a number of things, such as 1 image or 2,000 images."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def table(*headings: str, title: str | None = None) -> Table:
    """Return a table as wide as its title. In a narrow terminal, its texts continue on the next line."""
    new_table = Table(title=printable(title or "") or None, title_justify="left", min_width=len(title or ""))
    for heading in headings:
        new_table.add_column(printable(heading), overflow="fold")
    return new_table


def stop(reason: object, status: int = FAILED) -> NoReturn:
    """Print the reason on standard error and exit."""
    sys.stderr.write(f"charioteer: {sentence_of(reason)}\n")
    sys.exit(status)


def reject_unused(reason: str, options: Mapping[str, object]) -> None:
    """Reject options that have no effect for `reason`. `options` holds values by name; None and False are not given.

    Raise SettingsError naming the options.
    """
    if given := [name for name, value in options.items() if value is not None and value is not False]:
        raise SettingsError(f"{', '.join(given)}: no effect {reason}")


def check_output(*paths: Path | None) -> None:
    """Check that files can be written, before the slow work starts; None is no file.

    Raise ModelError when the folder of a file does not exist, or a file is a folder.
    """
    for path in filter(None, paths):
        if not path.parent.is_dir():
            raise ModelError(f"{path}: there is no folder {path.parent}")
        if path.is_dir():
            raise ModelError(f"{path}: Expected a file to write, got a folder")


class Bar:
    """A progress bar."""

    def __init__(self, shown: Progress, task: TaskID) -> None:
        self._shown, self._task = shown, task

    def advance(self, steps: float = 1, total: int | None = None) -> None:
        """Add finished steps, and set the number of all steps if it is known by now."""
        self._shown.update(self._task, advance=steps, total=total)

    def show(self, done: int, total: int | None = None) -> None:
        """Set the number of finished steps, and the number of all steps if it is known by now."""
        self._shown.update(self._task, completed=done, total=total)


@contextmanager
def progress(title: str, total: int | None = None) -> Generator[Bar]:
    """Show a bar with the remaining time on standard error, if it is a terminal."""
    stderr = error_console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as shown:
        yield Bar(shown, shown.add_task(escape(title), total=total))
