"""Send every case in fixtures/wire over a real socket, and compare the response with the expected one.

A case is a folder ``fixtures/wire/<protocol>/<case>`` with

- ``request.json`` or ``request.bin``, the body; both together are V2's JSON followed by the bytes of the tensors,
  with the header that gives the length of the JSON;
- ``response.json``; ``response.jsonl`` for several lines or concatenated messages; or ``response.bin`` alone for a
  response that is not JSON. The order of names counts, white space does not, and floating-point numbers may differ
  by a millionth. ``"<text>"`` matches any text, ``"<number>"`` any integer. ``response.bin`` with ``response.json``
  is the data after the JSON;
- ``case.toml``: ``method``, ``path``, ``status``, ``models`` (of ``tests.support.servers.apps``), and optionally
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

from tests.support.protocols import LISTENERS, PROTOCOLS
from tests.support.servers.apps import app_with_models
from tests.support.servers.http_connections import run_replaceable_app

WIRE = Path(__file__).parents[2] / "fixtures" / "wire"
CASES = sorted(path.parent for path in WIRE.glob("*/*/case.toml"))
HEADER_LENGTH = "inference-header-content-length"
ANY_TEXT = "<text>"
ANY_NUMBER = "<number>"
FIELDS = {"method", "path", "status", "models", "content_type", "headers", "response_headers"}

Clients = Callable[[str, tuple[str, ...]], httpx.Client]


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    """Return the client of a real server, after its application is set to a protocol and a set of models."""
    cached_app = cache(app_with_models)
    with run_replaceable_app() as (server, url), httpx.Client(base_url=url, timeout=60) as client:

        def client_of(protocol: str, models: tuple[str, ...]) -> httpx.Client:
            server.app = cached_app(models, protocol)
            return client

        yield client_of


def settings_of(case: Path) -> Mapping[str, Any]:
    """Read ``case.toml``, and reject unknown names."""
    settings = tomllib.loads((case / "case.toml").read_text())
    assert set(settings) <= FIELDS, f"{case.name}/case.toml has an unknown name"
    return settings


def one_case_per_protocol() -> list[Path]:
    """Return one successful inference for each protocol."""
    cases: dict[str, Path] = {}
    for case in CASES:
        settings = settings_of(case)
        if (settings["method"], settings["status"]) == ("POST", 200):
            cases.setdefault(case.parent.name, case)
    return list(cases.values())


def body_of(case: Path) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers that it needs."""
    parts = [part.read_bytes() for part in sorted(case.glob("request.*"), reverse=True)]
    if len(parts) < 2:
        return b"".join(parts), {}
    json_part, binary = parts
    return json_part + binary, {HEADER_LENGTH: str(len(json_part))}


def read_json(text: str) -> object:
    """Parse JSON objects as tuples of pairs, to keep order and duplicates."""
    return json.loads(text, object_pairs_hook=_as_tuple)


def read_json_documents(text: str) -> list[object]:
    """Parse concatenated JSON documents with `read_json`."""
    decoder = json.JSONDecoder(object_pairs_hook=_as_tuple)
    parsed: list[object] = []
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        parsed.append(document)
        text = text[end:]
    return parsed


def _as_tuple(members: list[tuple[str, object]]) -> tuple[object, ...]:
    return tuple(members)


def assert_same(actual: object, expected: object, path: str = "$") -> None:
    if expected == ANY_NUMBER and type(actual) is int:
        return
    assert type(actual) is type(expected), path
    if expected == ANY_TEXT and actual:
        return
    if isinstance(expected, list | tuple):
        expected_items, actual_items = cast("list[object]", expected), cast("list[object]", actual)
        assert len(actual_items) == len(expected_items), path
        for index, (one, other) in enumerate(zip(actual_items, expected_items, strict=True)):
            assert_same(one, other, f"{path}[{index}]")
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, abs=1e-6, nan_ok=True), path
    else:
        assert actual == expected, path


def test_every_protocol_has_cases() -> None:
    protocols = {case.parent.name for case in CASES}
    assert protocols == {protocol.name for protocol in (*PROTOCOLS, *LISTENERS)}
    assert {case.parent.name for case in one_case_per_protocol()} == protocols


def name_of(case: Path) -> str:
    return f"{case.parent.name}/{case.name}"


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_real_server_returns_expected_response(case: Path, clients: Clients) -> None:
    assert_answers(clients(case.parent.name, tuple(settings_of(case)["models"])), case)


@pytest.mark.parametrize("case", one_case_per_protocol(), ids=name_of)
def test_application_returns_expected_response_to_litestar_client(case: Path) -> None:
    with TestClient(app_with_models(settings_of(case)["models"], case.parent.name)) as client:
        assert_answers(client, case)


def assert_answers(client: httpx.Client, case: Path) -> None:
    """Send the request of a case, and compare the complete response."""
    settings = settings_of(case)
    body, headers = body_of(case)
    headers |= settings.get("headers", {})
    if "content_type" in settings:
        headers["content-type"] = settings["content_type"]
    response = client.request(settings["method"], settings["path"], content=body, headers=headers)
    assert response.status_code == settings["status"], response.text
    for name, value in settings.get("response_headers", {}).items():
        assert response.headers[name] == value
    names = {path.name for path in case.glob("response.*")}
    assert (HEADER_LENGTH in response.headers) is (names == {"response.json", "response.bin"})
    if not list(case.glob("response.json*")):
        assert response.content == (case / "response.bin").read_bytes()
        return
    (expected,) = case.glob("response.json*")
    if HEADER_LENGTH in response.headers:
        length = int(response.headers[HEADER_LENGTH])
        assert_same(read_json(response.content[:length].decode()), read_json(expected.read_text()))
        assert response.content[length:] == (case / "response.bin").read_bytes()
    elif expected.suffix == ".jsonl":
        assert_same(read_json_documents(response.text), read_json_documents(expected.read_text()))
    else:
        assert_same(read_json(response.text), read_json(expected.read_text()))
