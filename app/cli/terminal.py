"""The console that commands print to, and progress bars."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

__all__ = ("console", "progress")

_FALLBACK_WIDTH = 160


def console() -> Console:
    """Return a console on standard output, as wide as the terminal; wide enough for tables without a terminal."""
    new_console = Console(highlight=False, emoji=False)
    if not new_console.is_terminal:
        new_console.width = _FALLBACK_WIDTH
    return new_console


class _RateColumn(ProgressColumn):
    """Steps per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f}/s" if task.speed else "", style="progress.data.speed")


@contextmanager
def progress(title: str, total: int) -> Generator[Callable[[float], None]]:
    """Show a bar with rate and remaining time on standard error, if it is a terminal; yield a call that advances it."""
    error_console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _RateColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=error_console, transient=True, disable=not error_console.is_terminal) as bar:
        task = bar.add_task(title, total=total)
        yield lambda steps: bar.advance(task, steps)
