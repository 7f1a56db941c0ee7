"""Where commands print."""

from rich.console import Console

__all__ = ("Announcing", "console")

_WIDE = 160


class Announcing(Console):
    """Standard error, for what a server says of itself; whoever reads it may be gone, and the server serves on."""

    def __init__(self) -> None:
        super().__init__(stderr=True, highlight=False, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        """Nobody reads: rich would end the process."""
        self.quiet = True


def console() -> Console:
    """Standard output: as wide as the terminal, or wide enough that no table is cut where there is none."""
    made = Console(highlight=False, emoji=False)
    if not made.is_terminal:
        made.width = _WIDE
    return made
