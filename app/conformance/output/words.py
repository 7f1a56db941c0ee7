"""A finding in words, for reports that are read line by line."""

from collections.abc import Mapping, Sequence

from app.conformance.clause import Finding, Level, Need, Verdict
from app.conformance.probe import Exchange

__all__ = ("cut", "evidence", "readable_by", "readers_of")

_LONGEST_BODY = 2000
_READERS = (Need.STORAGE, Need.DRIFT, Need.EVALUATION)


def readable_by(finding: Finding, needs: Sequence[Need]) -> Mapping[Need, bool]:
    """Whether storage, drift detection and evaluation could still read answers in spite of what was found.

    Args:
        finding: of a clause that failed; of others there is nothing to say.
        needs: whom the protocol's clauses speak of; there is nothing to say where Chariot's three are not among them.
    """
    if finding.verdict is not Verdict.FAILED:
        return {}
    broken = finding.clause.needed_for if finding.clause.level is Level.MUST else ()
    return {need: need not in broken for need in needs if need in _READERS}


def readers_of(finding: Finding, needs: Sequence[Need]) -> str:
    """`readable_by` as a sentence; empty where there is nothing to say."""
    said = readable_by(finding, needs)
    would_not = ", ".join(need for need, still in said.items() if not still)
    would = ", ".join(need for need, still in said.items() if still)
    parts = [f"would not be read by {would_not}"] * bool(would_not) + [f"would still be read by {would}"] * bool(would)
    return f"Answers {'; '.join(parts)}." if parts else ""


def evidence(exchange: Exchange) -> str:
    """A request and its answer, as they went over the wire but for what is too long."""
    lines = [f"{exchange.method} {exchange.path}", *_headed(exchange.sent_headers), cut(exchange.sent)]
    lines += [f"-> {exchange.status}", *_headed(exchange.headers), cut(exchange.body)]
    return "\n".join(line for line in lines if line)


def _headed(headers: Mapping[str, str]) -> list[str]:
    return [f"{name}: {value}" for name, value in headers.items()]


def cut(body: bytes) -> str:
    """The beginning of a body as text."""
    text = body[:_LONGEST_BODY].decode(errors="replace")
    return text if len(body) <= _LONGEST_BODY else f"{text} ... ({len(body)} bytes)"
