"""Consoles that commands print to."""

from rich.console import Console

__all__ = ("AnnouncementConsole", "console")

_FALLBACK_WIDTH = 160


class AnnouncementConsole(Console):
    """Standard error for a server's messages. The server continues if standard error is closed."""

    def __init__(self) -> None:
        super().__init__(stderr=True, highlight=False, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        """Stop printing. The default of rich would exit the process."""
        self.quiet = True


def console() -> Console:
    """Return a console on standard output, as wide as the terminal; wide enough for tables without a terminal."""
    new_console = Console(highlight=False, emoji=False)
    if not new_console.is_terminal:
        new_console.width = _FALLBACK_WIDTH
    return new_console
