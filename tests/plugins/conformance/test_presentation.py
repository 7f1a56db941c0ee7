"""Reports as JSON and table, and their escaping of an engine's text."""

import io
import json

import httpx
import pytest
from rich.console import Console

from app.plugins.conformance.check import Check, Level, Need, NotApplicableError, Protocol
from app.plugins.conformance.exchange import InconclusiveError, ViolationError
from app.plugins.conformance.presentation import present, to_plain
from app.plugins.conformance.probe import Probe, Target
from app.plugins.conformance.protocols import PROTOCOLS
from app.plugins.conformance.runner import ConformanceReport
from app.report import print_report, to_json
from tests.plugins.conformance.engines import ScriptedCaller, check_engine

ITEM = b'{"label":"a","score":_,"xmin":_}'.replace(b"_", b"9" * 400)
HUGE = b'{"outputs":[{"name":"a","shape":[1],"datatype":"BYTES","data":[[%s]]}]}' % ITEM
EACH_PROTOCOL = pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
HOSTILE = "<script>alert(1)</script> [bold]&\x00\x1b[31m]]>"


def _fails(probe: Probe) -> None:
    probe.post_json("/infer", {"text": HOSTILE})
    raise ViolationError(HOSTILE)


def _passes(probe: Probe) -> None:
    probe.get("/ready")


def _untested(_: Probe) -> None:
    raise InconclusiveError("nothing found")


def _inapplicable(_: Probe) -> None:
    raise NotApplicableError("about others")


def _hangs(_: Probe) -> None:
    raise httpx.ReadTimeout("timed out")


def _spends(probe: Probe) -> None:
    for index in range(100):
        probe.get(f"/{index}")


CHECKS = (
    Check("X-1", Level.MUST, "It fails.", "here", _fails, (Need.STORAGE,)),
    Check("X-2", Level.MUST, "It passes.", "here", _passes, (Need.DRIFT,)),
    Check("X-3", Level.SHOULD, "It should.", "here", _fails, (Need.EVALUATION,)),
    Check("X-4", Level.MUST, "It is not known.", "here", _untested, (Need.EVALUATION,)),
    Check("X-5", Level.MUST, "It is of others.", "here", _inapplicable),
    Check("X-6", Level.MUST, "It follows.", "here", _passes, requires=("X-1",)),
    Check("X-9", Level.MUST, "It follows what follows.", "here", _passes, requires=("X-6",)),
    Check("X-7", Level.MUST, "It answers.", "here", _hangs),
    Check("X-8", Level.MUST, "It ends.", "here", _spends),
)


def report(*checks: Check) -> ConformanceReport:
    protocol, answer = Protocol("x", checks or CHECKS), httpx.Response(200, content=HOSTILE.encode())
    return check_engine(protocol, lambda _: answer, url="http://engine.local/<b>", model=None, max_requests=20)


def test_each_check_has_the_expected_verdict() -> None:
    verdicts = {finding.check.id: (finding.verdict.value, finding.reason) for finding in report().findings}
    assert {name: verdict for name, (verdict, _) in verdicts.items()} == {
        "X-1": "failed", "X-2": "passed", "X-3": "failed", "X-4": "not tested", "X-5": "not applicable",
        "X-6": "not tested", "X-9": "not tested", "X-7": "failed", "X-8": "not tested",
    }  # fmt: skip
    assert verdicts["X-6"][1] == "X-1 failed"
    assert verdicts["X-9"][1] == "X-1 failed"
    assert "timed out" in verdicts["X-7"][1]
    assert "20 requests" in verdicts["X-8"][1]


def test_only_failed_must_checks_break_conformance() -> None:
    conforming = [index for index in (0, 1, 2, 3, 4, 7) if report(CHECKS[index]).conforms]
    assert conforming == [1, 2, 3, 4]


def test_json_report_has_counts_features_and_exchanges() -> None:
    parsed = json.loads(to_json(to_plain(report())))
    assert (parsed["schema"], parsed["protocol"], parsed["conforms"]) == ("charioteer.conformance/2", "x", False)
    assert parsed["counts"]["MUST"] == {"passed": 1, "failed": 2, "not tested": 4, "not applicable": 1}
    assert parsed["features"]["storage"] == {"works": False, "failed": ["X-1"], "not_tested": []}
    assert parsed["features"]["drift"] == {"works": True, "failed": [], "not_tested": []}
    assert parsed["features"]["evaluation"] == {"works": True, "failed": [], "not_tested": ["X-4"]}
    (exchange,) = parsed["findings"][0]["exchanges"]
    assert json.loads(exchange["request"]["body"]) == {"text": HOSTILE}
    assert exchange["response"] == {"status": 200, "headers": {"content-length": "42"}, "body": HOSTILE}
    assert b"secret" not in to_json(to_plain(report()))


def table(result: ConformanceReport, *, everything: bool = False) -> str:
    written = io.StringIO()
    print_report(present(result, everything=everything), Console(file=written, width=200))
    return written.getvalue()


def test_table_shows_texts_escaped_verdict_and_features() -> None:
    text = table(report(), everything=True)
    assert HOSTILE.replace("\x00", r"\x00").replace("\x1b", r"\x1b") in text
    assert "\x1b" not in text
    assert "does not conform" in text
    assert "storage: would not work: X-1 failed" in text


def test_table_folds_untested_checks_with_the_same_reason() -> None:
    rows = [line for line in table(report()).splitlines() if line.startswith("│")]
    (folded,) = [index for index, row in enumerate(rows) if "2 checks" in row]
    assert "X-1 failed" in rows[folded]
    assert "X-6, X-9" in rows[folded + 1]
    assert [row.split()[1] for row in rows if row.split()[1].startswith("X-")] == ["X-1", "X-3", "X-7", "X-4", "X-8"]


@pytest.mark.parametrize(
    ("index", "message"),
    [(1, "engine conforms, by"), (3, "conforms but for 1 MUST not tested"), (0, "not conform, by")],
)
def test_untested_must_check_is_not_shown_as_passed(index: int, message: str) -> None:
    assert message in table(report(CHECKS[index]))


def test_closed_connection_is_reopened_once() -> None:
    failures = [httpx.RemoteProtocolError("Server disconnected"), httpx.ReadError("Connection reset by peer")]

    def closed(_: httpx.Request) -> httpx.Response:
        if failures:
            raise failures.pop()
        return httpx.Response(200)

    with httpx.Client(transport=httpx.MockTransport(closed)) as client:
        probe = Probe(client, Target(url="http://engine.local"))
        with pytest.raises(httpx.RemoteProtocolError):
            probe.get("/always")
        assert probe.get("/once").ok


@EACH_PROTOCOL
@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{}", b'{"outputs":[{}]}', b'{"outputs":[{"data":[[1]]}]}', HUGE, b"\xff", 9000 * b"["],
)
def test_malformed_answers_are_judged_without_an_error(protocol: Protocol, body: bytes) -> None:
    result = check_engine(
        protocol, lambda _: httpx.Response(200, content=body), caller=ScriptedCaller(lambda _: (0, "", [body]))
    )
    assert not result.conforms
    assert all("could not be judged" not in finding.reason for finding in result.findings if not protocol.images)
    assert to_json(to_plain(result))


def test_engine_without_the_service_does_not_conform() -> None:
    result = check_engine("v2-grpc", caller=ScriptedCaller(lambda _: (12, "", [])), model=None)
    assert not result.conforms
    assert "UNIMPLEMENTED" in result.findings[0].reason


def test_engine_that_answers_no_image_is_not_reported_to_find_nothing() -> None:
    result = check_engine("chariot-v2", lambda _: httpx.Response(404))
    reasons = {finding.reason for finding in result.findings}
    assert any("was answered with status 404" in reason for reason in reasons)
    assert not any("finds nothing" in reason for reason in reasons)


@EACH_PROTOCOL
def test_checks_are_well_formed(protocol: Protocol) -> None:
    known: set[str] = set()
    for check in protocol.checks:
        assert check.id not in known
        assert known.issuperset(check.requires), check.id
        assert check.sentence.endswith(".")
        assert check.source
        assert check.needed_for
        known.add(check.id)
