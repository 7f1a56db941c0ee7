"""What is asked for is made into an engine, or refused with a sentence, before anything is sent."""

import base64
from pathlib import Path
from typing import Any

import pytest

from app.conformance.clause import Clause
from app.conformance.wish import Wish, WishError, holding
from tests.app.conformance.tiny_engine import tiny_engine
from tests.support.server_process import ROOT

NOWHERE = Path("nowhere.json")


def test_an_engine_is_held_against_what_was_asked_for() -> None:
    told: list[Clause] = []
    with tiny_engine() as url:
        wish = Wish(url=url, protocol="v1", headers=("X-Gate: open",), images=[ROOT / "fixtures/images/scene.jpg"])
        with holding(wish) as held:
            assert held.probe.client.headers["x-gate"] == "open"
            assert [each.name for each in held.probe.target.pictures] == ["scene.jpg"]
            held.reach()
            report = held.report(told.append)
    assert report.conforms
    assert [each.id for each in told] == [each.clause.id for each in report.findings]


def test_a_clause_that_rests_on_others_looks_at_them() -> None:
    with tiny_engine(faulty=True) as url, holding(Wish(url=url, protocol="v1")) as held:
        clause = next(each for each in held.protocol.clauses if each.id == "V1-007")
        assert held.finding(clause).reason == "V1-006 failed"
        assert held.finding(clause) is held.finding(clause)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"url": "engine.local"}, "http:// or https:// for chariot-v2-kserve, got engine.local"),
        ({"url": "http://"}, "with a host"),
        ({"url": "http://[::1"}, "Invalid IPv6 URL"),
        ({"url": "http://engine:99999"}, "Port out of range"),
        ({"protocol": "grps-grpc"}, "grpc:// or grpcs:// for grps-grpc"),
        ({"protocol": "soap"}, "--protocol: Expected one of chariot-v2-kserve, "),
        ({"task_type": "CATS"}, "--task-type: Expected one of IMAGE_CLASSIFICATION, "),
        ({"timeout": 0.0}, "--timeout: Expected seconds above 0, got 0"),
        ({"timeout": float("nan")}, "--timeout: Expected seconds above 0, got nan"),
        ({"max_requests": 0}, "--max-requests: Expected 1 or more, got 0"),
        ({"headers": ("a: b", "secret")}, '--header: Expected "Name: value" in line 2'),
        ({"header_file": NOWHERE}, "--header-file: nowhere.json: No such file or directory"),
        ({"header_file": ROOT / "fixtures/images/scene.jpg"}, "scene.jpg: Expected ASCII"),
        ({"url": "http://engine.local/?key=secret"}, "Expected a URL without ? and #"),
        ({"headers": ("a b: c",)}, '--header: Expected "Name: value"'),
        ({"headers": ("a: b\r\nc: d",)}, '--header: Expected "Name: value"'),
        ({"images": (NOWHERE,)}, "--image: [Errno 2] No such file or directory"),
        ({"images": (ROOT / "README.md",)}, "--image: README.md: Expected an encoded image"),
        ({"request": NOWHERE}, "--request: [Errno 2] No such file or directory"),
        ({"request": ROOT / "README.md"}, "--request: JSON is malformed"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any], said: str) -> None:
    asked: dict[str, Any] = {"url": "http://engine.local", **wrong}
    with pytest.raises(WishError) as refused, holding(Wish(**asked)):
        pass
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)


def test_headers_come_from_a_file_and_what_is_none_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "gate"
    file.write_text("Authorization: Bearer secret\r\n\nX-Other: 1\n")
    with holding(Wish(url="http://engine.local", headers=("authorization: other",), header_file=file)) as held:
        assert held.probe.client.headers["authorization"] == "Bearer secret"
        assert held.probe.client.headers["x-other"] == "1"
    file.write_text("secret")
    with pytest.raises(WishError) as refused, holding(Wish(url="http://engine.local", header_file=file)):
        pass
    assert str(refused.value) == f'--header-file: {file}: Expected "Name: value" in line 1'


def test_a_password_in_the_url_is_sent_and_in_no_report() -> None:
    with holding(Wish(url="http://someone:s%40cret@engine.local:8000/base")) as held:
        assert held.probe.target.url == "http://engine.local:8000/base"
        assert base64.b64decode(held.probe.client.headers["authorization"].removeprefix("Basic ")) == b"someone:s@cret"
