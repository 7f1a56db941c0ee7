"""`python -m fuzz`: run a campaign, print what became of it; exit status 1 when anything was found."""

import secrets
import sys
from collections import Counter
from pathlib import Path

import cyclopts
from rich.console import Console
from rich.table import Table

from fuzz.campaign import SHARES, Campaign
from fuzz.generation import generated
from fuzz.tally import ShareReport

_FOLDER = Path(__file__).parents[1] / "build" / "fuzz"
_MOST_GROWTH = 0.05

app = cyclopts.App(name="fuzz", help="Send requests that are wrong in every way to a real server.")
console = Console(width=170, soft_wrap=True)


@app.default
def run(
    *,
    requests: int = 100_000,
    minutes: float = 30,
    seed: int | None = None,
    first: int = 0,
    processes: int = 4,
    out: Path = _FOLDER,
) -> int:
    """Run a campaign.

    Args:
        requests: how many, at most.
        minutes: how long, at most.
        seed: of the requests; another one each time when absent.
        first: the number of the first request, to go on where another campaign of the seed ended.
        processes: that send them.
        out: where findings and logs go.
    """
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    console.print(f"Seed {seed}, requests {first} to {first + requests - 1}, at most {minutes:g} minutes")
    campaign = Campaign(
        seed=seed, first=first, requests=requests, seconds=minutes * 60, processes=processes, folder=out
    )
    reports = campaign.run()
    faults = _print(reports)
    done = sum(each.tally.requests for each in reports)
    console.print(f"{done} requests of seed {seed}, {faults} findings" + (f"; see {out}" if faults else ""))
    if done < requests:
        console.print(f"Time ran out, or the server; `--seed {seed}` again sends the same requests")
    return 1 if faults else 0


@app.command
def show(index: int, *, seed: int, share: str = SHARES[0].name) -> int:
    """Show one request of a seed.

    Args:
        index: its number.
        seed: of the campaign.
        share: of the campaign that the number is in.
    """
    (protocols,) = (each.protocols for each in SHARES if each.name == share)
    console.print(generated(seed, index, protocols))
    return 0


def _print(reports: list[ShareReport]) -> int:
    protocols: Counter[str] = sum((each.tally.protocols for each in reports), Counter())
    kinds: Counter[str] = sum((each.tally.kinds for each in reports), Counter())
    statuses: Counter[str] = sum((each.tally.statuses for each in reports), Counter())
    _counted("protocol", protocols)
    _counted("what was done to it", kinds)
    _counted("answer", statuses)
    table = Table(
        "share", "requests", "a second", "MB before", "after", "growth", "files", "after", "longest", "findings"
    )
    faults = 0
    for each in reports:
        tally = each.tally
        seconds, index, case = tally.slowest
        found = len(tally.findings) + sum(each.faults.values()) + (each.growth > _MOST_GROWTH)
        faults += found
        table.add_row(
            each.name, str(tally.requests), f"{tally.requests / max(each.seconds, 1e-9):.0f}",
            f"{each.resident_before / 1e6:.0f}", f"{each.resident_after / 1e6:.0f}", f"{each.growth:+.1%}",
            str(each.files_before), str(each.files_after), f"{seconds:.2f} s ({case}, {index})", str(found),
        )  # fmt: skip
    console.print(table)
    for each in reports:
        console.print(
            f"{each.name}: MB every few thousand requests: {' '.join(f'{size / 1e6:.0f}' for size in each.resident)}"
        )
        for kind, count in Counter(f"{f.got.finding}"[:160] for f in each.tally.findings).most_common(40):
            console.print(f"{each.name}: {count} x {kind}", markup=False, highlight=False)
        for fault, count in each.faults.most_common(40):
            console.print(f"{each.name}: log: {count} x {fault}", markup=False, highlight=False)
        if each.growth > _MOST_GROWTH:
            console.print(f"{each.name}: the server grew by {each.growth:.1%}")
    return faults


def _counted(title: str, counts: Counter[str]) -> None:
    table = Table(title, "requests")
    for name, count in counts.most_common():
        table.add_row(name, str(count))
    console.print(table)


if __name__ == "__main__":
    sys.exit(app())
