"""What became of requests: counted, and what was found kept in files."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.fuzz.generation import Fuzzed
from tests.fuzz.requests import Http, Request
from tests.fuzz.sending import Outcome

__all__ = ("Finding", "ShareReport", "Tally", "saved")


class Finding(msgspec.Struct, frozen=True):
    """An answer that may not be: what was sent, what came, what is wrong with it."""

    sent: Fuzzed
    got: Outcome


class Tally(msgspec.Struct):
    """What became of some requests."""

    requests: int = 0
    statuses: Counter[str] = msgspec.field(default_factory=Counter)
    slowest: tuple[float, int, str] = (0.0, 0, "")
    findings: list[Finding] = msgspec.field(default_factory=list)

    def add(self, sent: Fuzzed, got: Outcome) -> None:
        """Count a request."""
        self.requests += 1
        self.statuses[got.status] += 1
        self.slowest = max(self.slowest, (got.seconds, sent.index, sent.case))
        if got.finding is not None:
            self.findings.append(Finding(sent, got))

    def merge(self, other: "Tally") -> None:
        """Count those of another."""
        self.requests += other.requests
        self.statuses += other.statuses
        self.slowest = max(self.slowest, other.slowest)
        self.findings += other.findings


class ShareReport(msgspec.Struct, kw_only=True):
    """What became of a share.

    Attributes:
        name: the share's.
        tally: its requests.
        seconds: that they took.
        resident: bytes that the server had in memory at its start, then after every `SAMPLED` requests.
        faults: in its log, and how it ended when that was not well.
    """

    name: str
    tally: Tally
    seconds: float
    resident: list[int]
    faults: Counter[str]


def saved(folder: Path, findings: Sequence[Finding]) -> None:
    """Write each finding into a file of its own: how to send it again, what was sent, what came."""
    for finding in findings:
        details = {
            "index": finding.sent.index,
            "case": finding.sent.case,
            "kinds": finding.sent.kinds,
            "finding": finding.got.finding,
        }
        content = (
            json.dumps(details, indent=1).encode()
            + b"\n\n"
            + _bytes_of(finding.sent.request)
            + b"\n\n"
            + finding.got.answer
        )
        (folder / f"finding-{finding.sent.index}.txt").write_bytes(content[:2_000_000])


def _bytes_of(request: Request) -> bytes:
    """A request as JSON, and its body as it is where it has one."""
    body = request.body if isinstance(request, Http) else b""
    return msgspec.json.encode(request) + b"\n\n" + body
