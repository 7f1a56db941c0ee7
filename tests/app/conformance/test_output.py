"""Reports: as JSON, JUnit, a page and a table, and what becomes of an engine's own words in them."""

import io
import json
import xml.etree.ElementTree as ET

import httpx
import pytest
from rich.console import Console

from app.conformance.clause import Clause, FaultError, InapplicableError, Level, Need, UntestedError
from app.conformance.holding import Report, UnreachableError, held_against
from app.conformance.output.html import html_report
from app.conformance.output.junit import junit_report
from app.conformance.output.plain import json_report
from app.conformance.output.table import print_report
from app.conformance.probe import Probe, Target
from app.conformance.protocols import PROTOCOLS, Protocol

HUGE = b'{"outputs":[{"name":"a","shape":[1],"datatype":"BYTES","data":[[{"label":"a","score":%s,"xmin":%s}]]}]}' % (
    b"9" * 400,
    b"9" * 400,
)
HOSTILE = "<script>alert(1)</script> [bold]&\x00\x1b[31m]]>"


def _fails(probe: Probe) -> None:
    probe.post_json("/infer", {"text": HOSTILE})
    raise FaultError(HOSTILE)


def _passes(probe: Probe) -> None:
    probe.get("/ready")


def _untested(_: Probe) -> None:
    raise UntestedError("nothing found")


def _inapplicable(_: Probe) -> None:
    raise InapplicableError("about others")


def _hangs(_: Probe) -> None:
    raise httpx.ReadTimeout("timed out")


def _spends(probe: Probe) -> None:
    for index in range(100):
        probe.get(f"/{index}")


CLAUSES = (
    Clause("X-1", Level.MUST, "It fails.", "here", _fails, (Need.STORAGE,)),
    Clause("X-2", Level.MUST, "It passes.", "here", _passes, (Need.DRIFT,)),
    Clause("X-3", Level.SHOULD, "It should.", "here", _fails, (Need.EVALUATION,)),
    Clause("X-4", Level.MUST, "It is not known.", "here", _untested, (Need.EVALUATION,)),
    Clause("X-5", Level.MUST, "It is of others.", "here", _inapplicable),
    Clause("X-6", Level.MUST, "It follows.", "here", _passes, requires=("X-1",)),
    Clause("X-9", Level.MUST, "It follows what follows.", "here", _passes, requires=("X-6",)),
    Clause("X-7", Level.MUST, "It answers.", "here", _hangs),
    Clause("X-8", Level.MUST, "It ends.", "here", _spends),
)


def report(*clauses: Clause, status: int = 200) -> Report:
    transport = httpx.MockTransport(lambda _: httpx.Response(status, content=HOSTILE.encode()))
    with httpx.Client(transport=transport, headers={"authorization": "Bearer secret"}) as client:
        target = Target(url="http://engine.local/<b>")
        return held_against(Protocol("x", clauses or CLAUSES), Probe(client, target, max_requests=20))


def test_verdicts() -> None:
    found = {each.clause.id: (each.verdict.value, each.reason) for each in report().findings}
    assert {name: verdict for name, (verdict, _) in found.items()} == {
        "X-1": "failed",
        "X-2": "passed",
        "X-3": "failed",
        "X-4": "not tested",
        "X-5": "not applicable",
        "X-6": "not tested",
        "X-9": "not tested",
        "X-7": "failed",
        "X-8": "not tested",
    }
    assert found["X-6"][1] == "X-1 failed"
    assert found["X-9"][1] == "X-1 failed"
    assert "timed out" in found["X-7"][1]
    assert "20 requests" in found["X-8"][1]


@pytest.mark.parametrize(("index", "conforms"), [(0, False), (1, True), (2, True), (3, True), (4, True), (7, False)])
def test_only_a_must_that_fails_decides(index: int, conforms: bool) -> None:
    assert report(CLAUSES[index]).conforms is conforms


def test_json() -> None:
    said = json.loads(json_report(report()))
    assert (said["protocol"], said["conforms"]) == ("x", False)
    assert said["counts"]["MUST"] == {"passed": 1, "failed": 2, "not tested": 4, "not applicable": 1}
    assert said["features"]["storage"] == {"works": False, "failed": ["X-1"], "not_tested": []}
    assert said["features"]["drift"] == {"works": True, "failed": [], "not_tested": []}
    assert said["features"]["evaluation"] == {"works": True, "failed": [], "not_tested": ["X-4"]}
    (exchange,) = said["findings"][0]["exchanges"]
    assert json.loads(exchange["request"]["body"]) == {"text": HOSTILE}
    assert exchange["response"] == {"status": 200, "headers": {"content-length": "42"}, "body": HOSTILE}
    assert b"secret" not in json_report(report())


def test_junit() -> None:
    (suite,) = ET.fromstring(junit_report(report()))
    assert {name: suite.get(name) for name in ("tests", "failures", "skipped", "errors")} == {
        "tests": "9",
        "failures": "2",
        "skipped": "6",
        "errors": "0",
    }
    assert [len(case) for case in suite] == [1, 0, 1, 1, 1, 1, 1, 1, 1]
    assert len(suite.findall("testcase/failure")) == 2
    assert len(suite.findall("testcase/skipped")) == 6


def test_page() -> None:
    page = html_report(report()).decode()
    assert "<script" not in page
    assert "<b>" not in page
    assert "&lt;script&gt;" in page
    assert "does not conform" in page
    assert page.index("X-1") < page.index("X-4") < page.index("X-2")


def test_table() -> None:
    written = io.StringIO()
    print_report(report(), Console(file=written, width=160), everything=True)
    assert "<script>alert(1)</script> [bold]" in written.getvalue()
    assert "does not conform" in written.getvalue()
    assert "storage: would not work: X-1 failed" in written.getvalue()


def test_an_engine_that_hangs_is_not_asked_for_ever() -> None:
    asked: list[httpx.Request] = []

    def hang(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/":
            return httpx.Response(404)
        asked.append(request)
        raise httpx.ReadTimeout("timed out")

    with httpx.Client(transport=httpx.MockTransport(hang)) as client:
        found = held_against(PROTOCOLS[0], Probe(client, Target(url="http://engine.local")))
    assert len(asked) == 3
    assert not found.conforms


def test_an_engine_that_is_not_there() -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with (
        httpx.Client(transport=httpx.MockTransport(refuse)) as client,
        pytest.raises(UnreachableError, match="refused"),
    ):
        held_against(PROTOCOLS[0], Probe(client, Target(url="http://engine.local")))


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda each: each.name)
@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{}", b'{"outputs":[{}]}', b'{"outputs":[{"data":[[1]]}]}', HUGE, b"\xff", 9000 * b"["],
)
def test_no_answer_upsets_the_checker(protocol: Protocol, body: bytes) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=body))
    with httpx.Client(transport=transport) as client:
        found = held_against(protocol, Probe(client, Target(url="http://engine.local", model="m")))
    assert not found.conforms


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda each: each.name)
def test_clauses_are_well_formed(protocol: Protocol) -> None:
    known: set[str] = set()
    for clause in protocol.clauses:
        assert clause.id not in known
        assert known.issuperset(clause.requires), clause.id
        assert clause.sentence.endswith(".")
        assert clause.source
        assert clause.needed_for
        known.add(clause.id)
