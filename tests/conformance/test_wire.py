"""Send every case in fixtures/wire over a real socket, and compare the response with the expected one.

A case is a folder ``fixtures/wire/<protocol>/<case>`` with

- ``request.json`` or ``request.bin``, the body; ``request.json`` and ``request.bin`` together are V2's JSON with the
  bytes of tensors behind it, and the header that says where one ends;
- ``response.json``, or ``response.jsonl`` for an answer of several lines, or of several messages one right behind the
  other, or ``response.bin`` alone for one that is no JSON. The order of names counts, white space does
  not, and floating-point numbers may differ by a millionth. ``"<text>"`` stands for any text, where answers differ.
  ``response.bin`` beside it is what has to follow the JSON;
- ``case.toml``: ``method``, ``path``, ``status``, ``models`` (of ``tests.support.served``), and where they matter
  ``content_type``, ``headers`` and ``response_headers``.
"""

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from litestar.testing import TestClient

from tests.support.http_connections import serving_any
from tests.support.served import build

WIRE = Path(__file__).parents[2] / "fixtures" / "wire"
CASES = sorted(each.parent for each in WIRE.glob("*/*/case.toml"))
HEADER_LENGTH = "inference-header-content-length"
ANY_TEXT = "<text>"
FIELDS = {"method", "path", "status", "models", "content_type", "headers", "response_headers"}

Clients = Callable[[str, tuple[str, ...]], httpx.Client]


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    """Return the client of a real server, after its application is set to a protocol and a set of models."""
    built = cache(build)
    with serving_any() as (server, url), httpx.Client(base_url=url, timeout=60) as client:

        def client_of(protocol: str, models: tuple[str, ...]) -> httpx.Client:
            server.current = built(models, protocol)
            return client

        yield client_of


def settings_of(case: Path) -> Mapping[str, Any]:
    """Read ``case.toml``, and reject unknown names."""
    settings = tomllib.loads((case / "case.toml").read_text())
    assert set(settings) <= FIELDS, f"{case.name}/case.toml has an unknown name"
    return settings


def one_of_each_protocol() -> list[Path]:
    """Return one successful inference for each protocol."""
    found: dict[str, Path] = {}
    for case in CASES:
        settings = settings_of(case)
        if (settings["method"], settings["status"]) == ("POST", 200):
            found.setdefault(case.parent.name, case)
    return list(found.values())


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


def name_of(case: Path) -> str:
    return f"{case.parent.name}/{case.name}"


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_real_server_answers_case(case: Path, clients: Clients) -> None:
    assert_answers(clients(case.parent.name, tuple(settings_of(case)["models"])), case)


@pytest.mark.parametrize("case", one_of_each_protocol(), ids=name_of)
def test_application_answers_litestar_client(case: Path) -> None:
    with TestClient(build(settings_of(case)["models"], case.parent.name)) as client:
        assert_answers(client, case)


def assert_answers(client: httpx.Client, case: Path) -> None:
    """Send the request of a case, and compare the whole response."""
    settings = settings_of(case)
    body, headers = body_of(case)
    headers |= settings.get("headers", {})
    if "content_type" in settings:
        headers["content-type"] = settings["content_type"]
    response = client.request(settings["method"], settings["path"], content=body, headers=headers)
    assert response.status_code == settings["status"], response.text
    for name, value in settings.get("response_headers", {}).items():
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
