"""Count the results of requests, and save findings."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.fuzz.generation import Fuzzed
from tests.fuzz.requests import Http, Request
from tests.fuzz.sending import Outcome


class Finding(msgspec.Struct, frozen=True):
    """An invalid response: the request, and the outcome."""

    sent: Fuzzed
    outcome: Outcome


class Tally(msgspec.Struct):
    """Results of some requests."""

    requests: int = 0
    statuses: Counter[str] = msgspec.field(default_factory=Counter)
    slowest: tuple[float, int, str] = (0.0, 0, "")
    findings: list[Finding] = msgspec.field(default_factory=list)

    def add(self, sent: Fuzzed, outcome: Outcome) -> None:
        """Add a result."""
        self.requests += 1
        self.statuses[outcome.status] += 1
        self.slowest = max(self.slowest, (outcome.seconds, sent.index, sent.case))
        if outcome.finding is not None:
            self.findings.append(Finding(sent, outcome))

    def merge(self, other: "Tally") -> None:
        """Add the results of another tally."""
        self.requests += other.requests
        self.statuses += other.statuses
        self.slowest = max(self.slowest, other.slowest)
        self.findings += other.findings


class ShareReport(msgspec.Struct, kw_only=True):
    """Results of a share.

    Attributes:
        name: name of the share.
        tally: results of its requests.
        seconds: duration.
        resident: resident memory of the server in bytes, at the start and after every `SAMPLED` requests.
        faults: errors in the log and the store, and an abnormal exit status.
    """

    name: str
    tally: Tally
    seconds: float
    resident: list[int]
    faults: Counter[str]


def save_findings(folder: Path, findings: Sequence[Finding]) -> None:
    """Write a file for each finding, with its index, the request and the response."""
    for finding in findings:
        details = {
            "index": finding.sent.index,
            "case": finding.sent.case,
            "kinds": finding.sent.kinds,
            "finding": finding.outcome.finding,
        }
        content = (
            json.dumps(details, indent=1).encode()
            + b"\n\n"
            + _bytes_of(finding.sent.request)
            + b"\n\n"
            + finding.outcome.answer
        )
        (folder / f"finding-{finding.sent.index}.txt").write_bytes(content[:2_000_000])


def _bytes_of(request: Request) -> bytes:
    """Return a request as JSON, followed by its raw body."""
    body = request.body if isinstance(request, Http) else b""
    return msgspec.json.encode(request) + b"\n\n" + body
