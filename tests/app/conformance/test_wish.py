"""What is asked for is made into an engine, or refused with a sentence, before anything is sent."""

from pathlib import Path
from typing import Any

import pytest

from app.conformance.clause import Clause
from app.conformance.wish import Wish, WishError, holding
from tests.app.conformance.tiny_engine import tiny_engine
from tests.server_process import ROOT

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
        ({"headers": ("secret",)}, '--header: Expected "Name: value", got "secret"'),
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
