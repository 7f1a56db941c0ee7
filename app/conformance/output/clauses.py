"""What the protocols ask, without an engine."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.conformance.clause import Level
from app.conformance.protocols import PROTOCOLS

__all__ = ("print_clauses",)


def print_clauses(console: Console, protocol: str | None = None) -> None:
    """Print how many clauses each protocol has, or the clauses of the one called `protocol`."""
    if protocol is None:
        table = Table("protocol", "clauses", "MUST", "SHOULD")
        for each in PROTOCOLS:
            counts = [sum(clause.level is level for clause in each.clauses) for level in Level]
            table.add_row(each.name, *map(str, (sum(counts), *counts)))
    else:
        table = Table("clause", "", "what is asked", "source", "needed for")
        for clause in (clause for each in PROTOCOLS if each.name == protocol for clause in each.clauses):
            table.add_row(clause.id, clause.level, escape(clause.sentence), escape(clause.source),
                          ", ".join(clause.needed_for))  # fmt: skip
    console.print(table)
