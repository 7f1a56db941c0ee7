"""Ways to break answers and requests over HTTP that several protocols share."""

import json
from collections.abc import Callable
from typing import Any

import httpx

from tests.app.conformance.engines import Headed, Rewrite, Spoil

Json = dict[str, Any]


def answers(change: Callable[[Any], object], path: str = "") -> Spoil:
    """A fault in every answer of status 200 on a path with `path` in it."""

    def spoil(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        if status == 200 and path in request.url.path and not isinstance(answer, bytes):
            change(answer)
        return status, answer

    return spoil


def headed(path: str, **headers: str | None) -> Spoil:
    """Other headers on every answer of status 200 on a path with `path` in it."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    def spoil(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        return (status, Headed(answer, named)) if status == 200 and path in request.url.path else (status, answer)

    return spoil


def where(chosen: Callable[[httpx.Request], bool], status: int, answer: Any = None) -> Spoil:
    """Another answer to the requests that are chosen; with its own words where there are none."""

    def spoil(request: httpx.Request, right: int, said: Any) -> tuple[int, Any]:
        if not chosen(request):
            return right, said
        return status, {"error": "no"} if answer is None else answer

    return spoil


def asking(word: bytes, status: int = 400, answer: Any = None) -> Spoil:
    """Another answer to every request with `word` in its body."""
    return where(lambda request: word in request.content, status, answer)


def asking_at(path: str, status: int = 404, answer: Any = None, *, method: str = "") -> Spoil:
    """Another answer to every request on a path with `path` in it."""
    return where(lambda r: path in r.url.path and method in ("", r.method), status, answer)


def body(change: Callable[[Json], object]) -> Rewrite:
    """The same request with another body, where that is a JSON object."""

    def rewrite(request: httpx.Request) -> httpx.Request:
        if not request.content.startswith(b"{"):
            return request
        try:
            said = json.loads(request.content)
        except ValueError:
            return request
        change(said)
        headers = {name: value for name, value in request.headers.items() if name != "content-length"}
        return httpx.Request(request.method, request.url, headers=headers, content=json.dumps(said).encode())

    return rewrite


def detailed(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    """FastAPI's refusals, which Triton's client cannot read."""
    return (status, {"detail": "no"}) if status >= 400 else (status, answer)


def blaming_itself(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    """What is not JSON is its own fault."""
    return (500, answer) if request.content.endswith(b"[") else (status, answer)
