"""Where commands print."""

from rich.console import Console

__all__ = ("console",)

_WIDE = 160


def console() -> Console:
    """Standard output: as wide as the terminal, or wide enough that no table is cut where there is none."""
    made = Console(highlight=False, emoji=False)
    if not made.is_terminal:
        made.width = _WIDE
    return made
