"""Send every golden case over a real socket, and compare the response with the expected one.

The order of names counts, white space does not, and floating-point numbers may differ by a millionth. ``"<text>"``
matches any text, ``"<number>"`` any integer.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import cast

import httpx
import pytest
from litestar.types import ASGIApp, Receive, Scope, Send

from app.core.server.listen import open_listen_socket
from app.core.server.serving import Listener
from tests.support.data.golden import CASES, HEADER_LENGTH, GoldenCase
from tests.support.protocols import LISTENERS, PROTOCOLS
from tests.support.servers.apps import app_with_models
from tests.support.servers.http_connections import local_transport, run_app

ANY_TEXT = "<text>"
ANY_NUMBER = "<number>"

Clients = Callable[[str, tuple[str, ...]], httpx.Client]


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    """Return the client of a real server, after its application is set to a protocol and a set of models."""
    cached_app, served = cache(app_with_models), list[ASGIApp]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await served[-1](scope, receive, send)

    with (
        open_listen_socket("127.0.0.1", 0) as listening,
        run_app(Listener(app=app), local_transport(), listening),
        httpx.Client(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=60) as client,
    ):

        def client_of(protocol: str, models: tuple[str, ...]) -> httpx.Client:
            served[:] = [cached_app(models, protocol)]
            return client

        yield client_of


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


def test_every_protocol_has_an_inference() -> None:
    protocols = {case.protocol for case in CASES if (case.settings["method"], case.settings["status"]) == ("POST", 200)}
    assert protocols >= {protocol.name for protocol in (*PROTOCOLS, *LISTENERS)}


def name_of(case: GoldenCase) -> str:
    return f"{case.protocol}/{case.name}"


def names_its_model(case: GoldenCase) -> bool:
    """Return whether other models beside the one that a case asks for change nothing."""
    (model, *others), body = case.settings["models"], case.files.get("request.json", b"")
    return not others and (model in case.settings["path"] or f'"model": "{model}"'.encode() in body)


@cache
def models_named(protocol: str) -> tuple[str, ...]:
    """Return all models that cases of a protocol name: one application with them costs less than one for each."""
    named = (case for case in CASES if case.protocol == protocol and names_its_model(case))
    return tuple(sorted({case.settings["models"][0] for case in named}))


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_real_server_returns_expected_response(case: GoldenCase, clients: Clients) -> None:
    settings, models = case.settings, tuple(case.settings["models"])
    client = clients(case.protocol, models_named(case.protocol) if names_its_model(case) else models)
    body, headers = case.body()
    response = client.request(settings["method"], settings["path"], content=body, headers=headers)
    assert response.status_code == settings["status"], response.text
    for name, value in settings.get("response_headers", {}).items():
        assert response.headers[name] == value
    expected = {name: content for name, content in case.files.items() if name.startswith("response.")}
    if settings["status"] >= 400 and "response.json" in expected:
        assert response.headers["content-type"] == "application/json"
    assert (HEADER_LENGTH in response.headers) is (expected.keys() == {"response.json", "response.bin"})
    if expected.keys() == {"response.bin"}:
        assert response.content == expected["response.bin"]
    elif HEADER_LENGTH in response.headers:
        length = int(response.headers[HEADER_LENGTH])
        assert_same(read_json(response.content[:length].decode()), read_json(expected["response.json"].decode()))
        assert response.content[length:] == expected["response.bin"]
    elif "response.jsonl" in expected:
        assert_same(read_json_documents(response.text), read_json_documents(expected["response.jsonl"].decode()))
    else:
        assert_same(read_json(response.text), read_json(expected["response.json"].decode()))
