"""Answers are read strictly, and judged without mercy."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from app.protocols.pb import message_class
from fuzz.answers import Answer, BadAnswerError, Connection, HungUpError
from fuzz.generation import Fuzzed
from fuzz.requests import Bytes, Call, Http
from fuzz.sending import Outcome
from fuzz.server import faults_in
from fuzz.tally import Tally, saved
from fuzz.verdict import judged_answer, judged_bytes, judged_call

REQUEST = Http(protocol="kserve-v2", method=b"POST", target=b"/v2/models/detector/infer", head=b"{}")
CALL = Call(protocol="kserve-v2-grpc", method="/inference.GRPCInferenceService/ServerLive", messages=(b"",))
JSON = {"content-type": "application/json"}


@contextmanager
def answering(data: bytes, *, hang: bool = False) -> Generator[Connection]:
    """A connection to something that says `data` to whatever it is asked, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        over = threading.Event()

        def serve() -> None:
            accepted, _ = listener.accept()
            with accepted:
                accepted.recv(1000)
                accepted.sendall(data)
                if hang:
                    over.wait(30)

        thread = threading.Thread(target=serve)
        thread.start()
        connection = Connection(listener.getsockname(), 0.3 if hang else 30)
        try:
            yield connection
        finally:
            over.set()
            connection.close()
            thread.join(30)


def test_an_answer_is_read_whole() -> None:
    with answering(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 2\r\n\r\n{}"
    ) as connection:
        assert connection.ask(b"x") == Answer(200, {"a": "b", "content-length": "2"}, b"{}")


def test_chunks_are_put_together() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n1\r\n \r\n0\r\n\r\n"
    with answering(chunked) as connection:
        assert connection.ask(b"x").body == b"{} "


@pytest.mark.parametrize(
    "data",
    [
        b"hello",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\r\n\r\nwhere does it end",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}x",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ],
)
def test_what_is_no_answer(data: bytes) -> None:
    with answering(data) as connection, pytest.raises((BadAnswerError, HungUpError)):
        connection.ask(b"x")


def test_a_server_that_says_nothing() -> None:
    with answering(b"", hang=True) as connection, pytest.raises(BadAnswerError, match="neither answered nor hung up"):
        connection.ask(b"x")


def test_half_an_answer_is_none() -> None:
    half = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"
    with answering(half) as connection, pytest.raises(HungUpError, match="amid an answer"):
        connection.ask(b"x")


def test_bytes_may_be_hung_up_on() -> None:
    with answering(b"") as connection:
        assert connection.throw(b"\0", half_close=True) == []
    with answering(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n") as connection:
        assert [each.status for each in connection.throw(b"\0", half_close=True)] == [400]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, JSON, b"{}"),
        Answer(400, JSON, b'{"error": "so"}'),
        Answer(404, JSON, b'{"status": {"code": 404, "msg": "so"}}'),
        Answer(200, {"content-type": "text/event-stream"}, b'data: {"a": 1}\n\n'),
        Answer(200, {"inference-header-content-length": "2"}, b"{}"),
        Answer(204, {}, b""),
    ],
)
def test_an_answer_that_may_be(answer: Answer) -> None:
    assert judged_answer(REQUEST, answer) is None


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        (Answer(500, JSON, b'{"error": "so"}'), "status 500"),
        (Answer(503, JSON, b'{"error": "so"}'), "status 503"),
        (Answer(504, JSON, b'{"error": "so"}'), "status 504"),
        (Answer(302, {}, b""), "status 302"),
        (Answer(400, JSON, b"{}"), "without a word"),
        (Answer(400, {"content-type": "text/plain"}, b"so"), "as text/plain"),
        (Answer(200, JSON, b"{"), "no JSON"),
        (Answer(200, JSON, b'{"score": NaN}'), "no JSON"),
        (Answer(200, JSON, b'"\xff"'), "no JSON"),
        (Answer(200, {}, b"x"), "content type"),
        (Answer(200, JSON, b'{"a": "Traceback (most recent call last)"}'), "inside"),
        (Answer(200, {"content-type": "text/event-stream"}, b"data: {\n\n"), "no JSON"),
        (Answer(200, {"inference-header-content-length": "2"}, b"{}x"), "3 bytes"),
    ],
)
def test_an_answer_that_may_not_be(answer: Answer, wrong: str) -> None:
    assert wrong in (judged_answer(REQUEST, answer) or "")


def test_what_excuses_a_status() -> None:
    error = b'{"error": "so"}'
    spare = msgspec.structs.replace(REQUEST, target=b"/v2/models/sp%61re/infer")
    assert judged_answer(spare, Answer(503, JSON, error)) is None
    hurried = msgspec.structs.replace(REQUEST, headers=((b"timeout", b"1"),))
    assert judged_answer(hurried, Answer(504, JSON, error)) is None
    explained = msgspec.structs.replace(REQUEST, target=b"/v1/models/greeter%3aexplain")
    assert judged_answer(explained, Answer(501, JSON, error)) is None


def test_bytes_are_judged_by_what_comes_back() -> None:
    sent = Bytes(protocol="kserve-v2", port="http", data=b"x")
    assert judged_bytes(sent, [Answer(400, {}, b"")]) is None
    assert judged_bytes(sent, [Answer(400, {}, b""), Answer(500, {}, b"")]) == "status 500"


def test_calls_are_judged_too() -> None:
    live = message_class("inference.ServerLiveResponse")(live=True).SerializeToString()
    assert judged_call(CALL, "OK", "", [live]) is None
    assert judged_call(CALL, "INVALID_ARGUMENT", "so", []) is None
    assert judged_call(CALL, "INVALID_ARGUMENT", "", []) == "INVALID_ARGUMENT without a word"
    assert judged_call(CALL, "OK", "", [b"\x0a"]) is not None
    for code in ("INTERNAL", "UNKNOWN", "UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED"):
        assert judged_call(CALL, code, "so", []) is not None


def test_grps_says_what_went_wrong_in_its_message() -> None:
    call = msgspec.structs.replace(CALL, method="/grps.protos.v1.GrpsService/Predict")
    failed = message_class("grps.protos.v1.GrpsMessage")
    assert judged_call(call, "OK", "", [failed(status={"code": 400, "msg": "so"}).SerializeToString()]) is None
    assert judged_call(call, "OK", "", [failed(status={"code": 500, "msg": "so"}).SerializeToString()]) is not None


def test_findings_are_kept_with_what_was_sent_and_what_came(tmp_path: Path) -> None:
    tally, other = Tally(), Tally()
    sent = Fuzzed(index=7, case="kserve-v2/plain", kinds=("path",), request=REQUEST)
    tally.add(sent, Outcome(status="200", seconds=0.1, finding=None, answer=b""))
    other.add(sent, Outcome(status="500", seconds=0.2, finding="status 500", answer=b"500\n\nso"))
    tally.merge(other)
    assert (tally.requests, tally.slowest, tally.statuses["500"]) == (2, (0.2, 7, "kserve-v2/plain"), 1)
    saved(tmp_path, tally.findings)
    (file,) = tmp_path.iterdir()
    told = file.read_bytes()
    assert b'"finding": "status 500"' in told
    assert b"{}" in told
    assert told.endswith(b"500\n\nso")


def test_faults_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    lines = [
        "Charioteer answers at http://127.0.0.1:1 (x)",
        "  gRPC                        127.0.0.1:2",
        "",
        '{"level": "info"}',
    ]
    lines += ["libpng warning: iCCP: too short", '{"level": "warning", "event": "slow"}']
    log.write_text("\n".join(lines))
    assert not faults_in(log)
    lines += [
        'libpng error{"level": "info"}',
        "Traceback (most recent call last):",
        '{"level": "error", "event": "no"}',
    ]
    log.write_text("\n".join(lines))
    assert sorted(faults_in(log).values()) == [1, 1, 1]
