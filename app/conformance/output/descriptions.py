"""Describe a finding as text for reports."""

from collections.abc import Mapping, Sequence

from app.conformance.check import Finding, Level, Need, Verdict
from app.conformance.client.probe import Exchange

_MAX_BODY_BYTES = 2000
_READERS = (Need.STORAGE, Need.DRIFT, Need.EVALUATION)


def readable_by(finding: Finding, needs: Sequence[Need]) -> Mapping[Need, bool]:
    """Return whether storage, drift detection and evaluation can read responses although a check failed.

    Args:
        finding: the finding; the result is empty unless it failed.
        needs: what depends on the protocol's checks; the result has only Chariot's three features.
    """
    if finding.verdict is not Verdict.FAILED:
        return {}
    failed_needs = finding.check.needed_for if finding.check.level is Level.MUST else ()
    return {need: need not in failed_needs for need in needs if need in _READERS}


def describe_readers(finding: Finding, needs: Sequence[Need]) -> str:
    """Return `readable_by` as a sentence, or an empty string if it is empty."""
    readable = readable_by(finding, needs)
    non_readers = ", ".join(need for need, is_readable in readable.items() if not is_readable)
    readers = ", ".join(need for need, is_readable in readable.items() if is_readable)
    parts = [f"would not be read by {non_readers}"] * bool(non_readers) + [f"would still be read by {readers}"] * bool(
        readers
    )
    return f"Answers {'; '.join(parts)}." if parts else ""


def evidence(exchange: Exchange) -> str:
    """Return a request and its response as text, with long bodies truncated."""
    lines = [
        f"{exchange.method} {exchange.path}",
        *_header_lines(exchange.request_headers),
        truncate_body(exchange.request_body),
    ]
    lines += [f"-> {exchange.status}", *_header_lines(exchange.headers), truncate_body(exchange.body)]
    return "\n".join(line for line in lines if line)


def _header_lines(headers: Mapping[str, str]) -> list[str]:
    return [f"{name}: {value}" for name, value in headers.items()]


def truncate_body(body: bytes) -> str:
    """Return a body as text, truncated if it is long."""
    text = body[:_MAX_BODY_BYTES].decode(errors="replace")
    return text if len(body) <= _MAX_BODY_BYTES else f"{text} ... ({len(body)} bytes)"
