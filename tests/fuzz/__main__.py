"""`python -m tests.fuzz`: run a campaign, print its results; exit with status 1 if there are findings."""

import secrets
import sys
from collections import Counter
from pathlib import Path

import cyclopts
from rich.console import Console
from rich.table import Table

from tests.fuzz.campaign import SAMPLED, SHARES, Campaign
from tests.fuzz.generation import generate_request
from tests.fuzz.tally import ShareReport

_FOLDER = Path(__file__).parents[2] / "build" / "fuzz"

app = cyclopts.App(name="fuzz", help="Send mutated requests to a real server.")
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
        requests: maximum number of requests.
        minutes: maximum duration.
        seed: seed of the requests; random by default.
        first: index of the first request, to continue a campaign with the same seed.
        processes: number of processes that send requests.
        out: folder for findings and logs.
    """
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    console.print(f"Seed {seed}, requests {first} to {first + requests - 1}, at most {minutes:g} minutes")
    campaign = Campaign(
        seed=seed, first=first, requests=requests, seconds=minutes * 60, processes=processes, folder=out
    )
    reports = campaign.run()
    faults = _print(reports)
    completed = sum(report.tally.requests for report in reports)
    console.print(f"{completed} requests of seed {seed}, {faults} findings" + (f"; see {out}" if faults else ""))
    if completed < requests:
        console.print(f"Time ran out, or the server; `--seed {seed}` again sends the same requests")
    return 1 if faults else 0


@app.command
def show(index: int, *, seed: int, share: str = SHARES[0].name) -> int:
    """Show one request of a seed.

    Args:
        index: index of the request.
        seed: seed of the campaign.
        share: share of the campaign that has the request.
    """
    (protocols,) = (candidate.protocols for candidate in SHARES if candidate.name == share)
    console.print(generate_request(seed, index, protocols))
    return 0


def _print(reports: list[ShareReport]) -> int:
    """Print a table and every finding, and return the number of findings."""
    table = Table("share", "requests", "a second", "longest", "findings")
    faults = 0
    for report in reports:
        tally = report.tally
        seconds, index, case = tally.slowest
        count_of_share = len(tally.findings) + sum(report.faults.values())
        faults += count_of_share
        rate = tally.requests / max(report.seconds, 1e-9)
        table.add_row(
            report.name, str(tally.requests), f"{rate:.0f}", f"{seconds:.2f} s ({case}, {index})", str(count_of_share)
        )
    console.print(table)
    for report in reports:
        sizes = " ".join(f"{size / 1e6:.0f}" for size in report.resident)
        console.print(f"{report.name}: resident MB at the start and after every {SAMPLED:,} requests: {sizes}")
        console.print(
            f"{report.name}: {', '.join(f'{count} x {name}' for name, count in report.tally.statuses.items())}"
        )
        for kind, count in Counter(f"{f.outcome.finding}"[:160] for f in report.tally.findings).most_common(40):
            console.print(f"{report.name}: {count} x {kind}", markup=False, highlight=False)
        for fault, count in report.faults.most_common(40):
            console.print(f"{report.name}: log: {count} x {fault}", markup=False, highlight=False)
    return faults


if __name__ == "__main__":
    sys.exit(app())
