"""Print the clauses of the protocols, without an engine."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.conformance.check import Level
from app.conformance.protocols import PROTOCOLS

__all__ = ("print_checks",)


def print_checks(console: Console, protocol: str | None = None) -> None:
    """Print the number of clauses of each protocol, or the clauses of `protocol`."""
    if protocol is None:
        table = Table("protocol", "clauses", "MUST", "SHOULD")
        for item in PROTOCOLS:
            counts = [sum(check.level is level for check in item.checks) for level in Level]
            table.add_row(item.name, *map(str, (sum(counts), *counts)))
    else:
        table = Table("clause", "", "requirement", "source", "needed for")
        for clause in (clause for choice in PROTOCOLS if choice.name == protocol for clause in choice.checks):
            table.add_row(clause.id, clause.level, escape(clause.sentence), escape(clause.source),
                          ", ".join(clause.needed_for))  # fmt: skip
    console.print(table)
