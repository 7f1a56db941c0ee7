"""What became of requests: counted, and what was found kept in files."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fuzz.generation import Fuzzed
from fuzz.requests import Http, Request
from fuzz.sending import Outcome

__all__ = ("Finding", "ShareReport", "Tally", "saved")


class Finding(msgspec.Struct, frozen=True):
    """An answer that may not be: what was sent, what came, what is wrong with it."""

    sent: Fuzzed
    got: Outcome


class Tally(msgspec.Struct):
    """What became of some requests."""

    protocols: Counter[str] = msgspec.field(default_factory=Counter)
    kinds: Counter[str] = msgspec.field(default_factory=Counter)
    statuses: Counter[str] = msgspec.field(default_factory=Counter)
    slowest: tuple[float, int, str] = (0.0, 0, "")
    findings: list[Finding] = msgspec.field(default_factory=list)

    @property
    def requests(self) -> int:
        """How many."""
        return sum(self.protocols.values())

    def add(self, sent: Fuzzed, got: Outcome) -> None:
        """Count a request."""
        self.protocols[sent.request.protocol] += 1
        self.kinds.update(set(sent.kinds))
        self.statuses[got.status] += 1
        self.slowest = max(self.slowest, (got.seconds, sent.index, sent.case))
        if got.finding is not None:
            self.findings.append(Finding(sent, got))

    def merge(self, other: "Tally") -> None:
        """Count those of another."""
        self.protocols += other.protocols
        self.kinds += other.kinds
        self.statuses += other.statuses
        self.slowest = max(self.slowest, other.slowest)
        self.findings += other.findings


class ShareReport(msgspec.Struct, kw_only=True):
    """What became of a share.

    Attributes:
        name: the share's.
        tally: its requests.
        seconds: that they took.
        resident_before: bytes that the server had after a warm-up of other requests.
        resident_after: the same after all of them, and some that are right.
        resident: the same every few thousand requests.
        files_before: its open file descriptors.
        files_after: the same.
        faults: in its log, and how it ended when that was not well.
    """

    name: str
    tally: Tally
    seconds: float
    resident_before: int
    resident_after: int
    resident: list[int]
    files_before: int
    files_after: int
    faults: Counter[str]

    @property
    def growth(self) -> float:
        """Of what it has resident, as a share of what it had."""
        return self.resident_after / self.resident_before - 1


def saved(folder: Path, findings: Sequence[Finding]) -> None:
    """Write each finding into a file of its own: how to send it again, what was sent, what came."""
    for each in findings:
        told = {"index": each.sent.index, "case": each.sent.case, "kinds": each.sent.kinds, "finding": each.got.finding}
        content = (
            json.dumps(told, indent=1).encode() + b"\n\n" + _bytes_of(each.sent.request) + b"\n\n" + each.got.answer
        )
        (folder / f"finding-{each.sent.index}.txt").write_bytes(content[:2_000_000])


def _bytes_of(request: Request) -> bytes:
    """A request as JSON, and its body as it is where it has one."""
    body = request.body if isinstance(request, Http) else b""
    return msgspec.json.encode(request) + b"\n\n" + body
