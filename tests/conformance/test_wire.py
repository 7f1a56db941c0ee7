"""Every case in fixtures/wire: a request as it goes over the wire, and the response it has to get.

A case is a folder ``fixtures/wire/<protocol>/<case>`` with

- ``request.json`` or ``request.bin``, the body; ``request.json`` and ``request.bin`` together are V2's JSON with the
  bytes of tensors behind it, and the header that says where one ends;
- ``response.json``, or ``response.jsonl`` for an answer of several lines, or of several messages one right behind the
  other, or ``response.bin`` alone for one that is no JSON. The order of names counts, white space does
  not, and floating-point numbers may differ by a millionth. ``"<text>"`` stands for any text, where answers differ.
  ``response.bin`` beside it is what has to follow the JSON;
- ``case.toml``: ``method``, ``path``, ``status``, ``models`` (of ``tests.conformance.served``), and where they matter
  ``content_type``, ``headers`` and ``response_headers``.
"""

import json
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from tests.conformance.served import build

WIRE = Path(__file__).parents[2] / "fixtures" / "wire"
CASES = sorted(each.parent for each in WIRE.glob("*/*/case.toml"))
HEADER_LENGTH = "inference-header-content-length"
ANY_TEXT = "<text>"
FIELDS = {"method", "path", "status", "models", "content_type", "headers", "response_headers"}

Clients = Callable[[str, tuple[str, ...]], TestClient[Litestar]]


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    """A client for each protocol and set of models, started when first asked for."""
    started: dict[tuple[str, tuple[str, ...]], TestClient[Litestar]] = {}
    with ExitStack() as stack:

        def client(protocol: str, models: tuple[str, ...]) -> TestClient[Litestar]:
            if (protocol, models) not in started:
                started[protocol, models] = stack.enter_context(TestClient(build(models, protocol)))
            return started[protocol, models]

        yield client


def body_of(case: Path) -> tuple[bytes, dict[str, str]]:
    """The body, and the header that it needs."""
    parts = [part.read_bytes() for part in sorted(case.glob("request.*"), reverse=True)]
    if len(parts) < 2:
        return b"".join(parts), {}
    json_part, binary = parts
    return json_part + binary, {HEADER_LENGTH: str(len(json_part))}


def pairs(text: str) -> object:
    """JSON with its objects as lists of pairs, so that order and repetition are seen."""
    return json.loads(text, object_pairs_hook=_as_tuple)


def documents(text: str) -> list[object]:
    """JSON behind JSON, with or without anything in between, each as `pairs`."""
    decoder = json.JSONDecoder(object_pairs_hook=_as_tuple)
    found: list[object] = []
    while text := text.lstrip():
        one, end = decoder.raw_decode(text)
        found.append(one)
        text = text[end:]
    return found


def _as_tuple(found: list[tuple[str, object]]) -> tuple[object, ...]:
    return tuple(found)


def assert_same(actual: object, expected: object, path: str = "$") -> None:
    assert type(actual) is type(expected), path
    if expected == ANY_TEXT and actual:
        return
    if isinstance(expected, list | tuple):
        wanted, got = cast("list[object]", expected), cast("list[object]", actual)
        assert len(got) == len(wanted), path
        for index, (one, other) in enumerate(zip(got, wanted, strict=True)):
            assert_same(one, other, f"{path}[{index}]")
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, abs=1e-6, nan_ok=True), path
    else:
        assert actual == expected, path


def test_there_are_cases_for_every_protocol() -> None:
    found = {case.parent.name for case in CASES}
    assert found >= {"chariot-v2", "chariot-v2-kserve", "grps", "kserve-v1", "kserve-v2", "tensorflow-serving"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_case(case: Path, clients: Clients) -> None:
    told = tomllib.loads((case / "case.toml").read_text())
    assert set(told) <= FIELDS, "a name in case.toml that nothing reads"
    body, headers = body_of(case)
    headers |= told.get("headers", {})
    if "content_type" in told:
        headers["content-type"] = told["content_type"]
    client = clients(case.parent.name, tuple(told["models"]))
    response = client.request(told["method"], told["path"], content=body, headers=headers)
    assert response.status_code == told["status"], response.text
    for name, value in told.get("response_headers", {}).items():
        assert response.headers[name] == value
    names = {each.name for each in case.glob("response.*")}
    assert (HEADER_LENGTH in response.headers) is (names == {"response.json", "response.bin"})
    if not list(case.glob("response.json*")):
        assert response.content == (case / "response.bin").read_bytes()
        return
    (expected,) = case.glob("response.json*")
    if HEADER_LENGTH in response.headers:
        length = int(response.headers[HEADER_LENGTH])
        assert_same(pairs(response.content[:length].decode()), pairs(expected.read_text()))
        assert response.content[length:] == (case / "response.bin").read_bytes()
    elif expected.suffix == ".jsonl":
        assert_same(documents(response.text), documents(expected.read_text()))
    else:
        assert_same(pairs(response.text), pairs(expected.read_text()))
