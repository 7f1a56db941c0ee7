"""Errors of Ray Serve's proxy, without Ray."""

import asyncio
from typing import Any

import httpx
from litestar.types import ASGIApp, Receive, Scope, Send

from app.plugins.ray.proxy import ProxyErrors, without_request_id


async def lose_the_replica(scope: Scope, receive: Receive, send: Send) -> None:
    """End a request as Ray's proxy does when the replica dies."""


def respond(status: int, content_type: bytes, *parts: bytes) -> ASGIApp:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", content_type), (b"retry-after", b"7"), (b"x-request-id", b"a")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": part != parts[-1]})

    return application


def ask(application: ASGIApp) -> httpx.Response:
    async def session() -> httpx.Response:
        wrapped: Any = ProxyErrors(application)
        transport = httpx.ASGITransport(wrapped)
        async with httpx.AsyncClient(transport=transport, base_url="http://ray") as client:
            return await client.get("/ready")

    return asyncio.run(session())


def test_lost_replica_gets_503_and_a_retry_delay() -> None:
    answer = ask(lose_the_replica)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "send the request again" in answer.json()["error"]


def test_plain_error_of_the_proxy_becomes_json_with_its_status_and_headers() -> None:
    answer = ask(respond(503, b"text/plain", b"No ", b"replicas"))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "7")
    assert (answer.headers["content-type"], answer.json()) == ("application/json", {"error": "No replicas"})


def test_other_answers_pass_unchanged() -> None:
    for status, content_type in ((400, b"application/json"), (200, b"text/plain")):
        answer = ask(respond(status, content_type, b"{", b"}"))
        assert (answer.status_code, answer.content, answer.headers["content-type"]) == (
            status,
            b"{}",
            content_type.decode(),
        )


def test_request_id_is_left_to_the_proxy() -> None:
    answer = ask(without_request_id(respond(200, b"text/plain", b"a")))
    assert (answer.text, answer.headers["retry-after"], "x-request-id" in answer.headers) == ("a", "7", False)
