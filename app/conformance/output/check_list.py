"""Print the checks of the protocols, without an engine."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.conformance.check import Level
from app.conformance.protocols import PROTOCOLS

__all__ = ("print_checks",)


def print_checks(console: Console, protocol: str | None = None) -> None:
    """Print the number of checks of each protocol, or the checks of `protocol`."""
    if protocol is None:
        table = Table("protocol", "checks", "MUST", "SHOULD")
        for item in PROTOCOLS:
            counts = [sum(check.level is level for check in item.checks) for level in Level]
            table.add_row(item.name, *map(str, (sum(counts), *counts)))
    else:
        table = Table("check", "", "requirement", "source", "needed for")
        for check in (check for choice in PROTOCOLS if choice.name == protocol for check in choice.checks):
            table.add_row(check.id, check.level, escape(check.sentence), escape(check.source),
                          ", ".join(check.needed_for))  # fmt: skip
    console.print(table)
