"""Run it, print tables, and write them into docs/reliability.md: ``python -m tests.soak`` (``make soak``)."""

import argparse
import os
import platform
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tests.benchmarks.serving.section import Section, as_markdown
from tests.soak.references import ROOT
from tests.soak.session import Options, Result, kinds, soak

_DOCUMENT = ROOT / "docs" / "reliability.md"
_WIDTH = 150
_LOG = ROOT / "build" / "soak" / "server.log"
START_MARK = "<!-- What follows is written by `python -m tests.soak --write`. -->"
END_MARK = "<!-- The end of what is written by it. -->"


def main() -> None:
    """Run the soak test; exit with status 1 if it failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--load", type=float, default=0.5, help="offered load, as a share of the measured capacity")
    parser.add_argument("--rate", type=float, help="requests a second, instead of --load")
    parser.add_argument("--pause", type=float, default=4, help="seconds between faults")
    parser.add_argument("--only", nargs="*", default=[], metavar="FAULT", help=f"of {', '.join(kinds())}")
    parser.add_argument("--write", action="store_true", help="the tables into docs/reliability.md")
    arguments = parser.parse_args()
    if unknown := set(arguments.only) - set(kinds()):
        parser.error(f"known faults are {', '.join(kinds())}, not {', '.join(unknown)}")
    _LOG.parent.mkdir(parents=True, exist_ok=True)
    _LOG.unlink(missing_ok=True)
    print(f"Seed {arguments.seed}, {arguments.minutes:g} minutes", flush=True)
    options = Options(
        seconds=arguments.minutes * 60,
        seed=arguments.seed,
        load=arguments.load,
        rate=arguments.rate,
        pause=arguments.pause,
        only=arguments.only,
    )
    result = soak(options, _LOG)
    header = _header(options, result)
    _show(header, result)
    if arguments.write:
        _DOCUMENT.write_text(replace_tables(_DOCUMENT.read_text(), header, result.sections))
    sys.exit(1 if result.failures else 0)


def replace_tables(document: str, header: str, tables: Sequence[Section]) -> str:
    """Return the document with its tables replaced by new ones.

    Raises:
        ValueError: when the document has no marks around its tables.
    """
    before, start_mark, rest = document.partition(START_MARK)
    _, end_mark, after = rest.partition(END_MARK)
    if not start_mark or not end_mark:
        raise ValueError(f"The document has no place for the tables: {START_MARK} and {END_MARK}")
    parts = [as_markdown(table).replace("## ", "### ", 1) for table in tables]
    return "\n".join([f"{before}{start_mark}\n", header, "", *parts, f"{end_mark}{after}"])


def _header(options: Options, result: Result) -> str:
    cores = len(os.sched_getaffinity(0))
    not_sent = f" {result.held_back:,} requests were not sent, because too many were open." if result.held_back else ""
    machine = f"{cores} cores, Python {platform.python_version()}"
    offered = f"{result.rate:.0f} requests a second were offered.{not_sent}"
    return f"{options.seconds / 60:g} minutes with seed {options.seed} on {machine}: {offered}"


def _show(header: str, result: Result) -> None:
    console = Console(width=_WIDTH, highlight=False)
    console.print(header)
    for section in result.sections:
        table = Table(title=section.title, title_justify="left")
        for index, column in enumerate(section.columns):
            table.add_column(column, justify="right" if index else "left")
        for row in section.rows:
            table.add_row(*(_cell(cell) for cell in row))
        console.print(table)
    for traceback in result.tracebacks:
        console.print(traceback, markup=False, soft_wrap=True)
    for failure in result.failures:
        console.print(f"FAILED  {failure}", markup=False, soft_wrap=True)
    console.print("FAILED" if result.failures else "PASSED")


def _cell(cell: str | float | int | None) -> str:
    if cell is None:
        return ""
    return f"{cell:,.2f}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else cell


if __name__ == "__main__":
    main()
