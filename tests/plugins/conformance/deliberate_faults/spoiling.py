"""Faults in HTTP answers and requests and in gRPC replies that several protocols share."""

import json
from collections.abc import Callable
from typing import Any

import httpx

from tests.plugins.conformance.engines import AnswerFault, CallFault, Reply, RequestFault, WithHeaders

Json = dict[str, Any]


def change_answers(change: Callable[[Any], object], path: str = "") -> AnswerFault:
    """Change every answer of status 200 on a path that contains `path`."""

    def fault(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        if status == 200 and path in request.url.path and not isinstance(answer, bytes):
            change(answer)
        return status, answer

    return fault


def set_headers(path: str, **headers: str | None) -> AnswerFault:
    """Replace headers of every answer of status 200 on a path that contains `path`."""
    replaced = {name.replace("_", "-"): value for name, value in headers.items()}

    def fault(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        return (
            (status, WithHeaders(answer, replaced)) if status == 200 and path in request.url.path else (status, answer)
        )

    return fault


def replace_when(matches: Callable[[httpx.Request], bool], status: int, answer: Any = None) -> AnswerFault:
    """Replace the answers to requests that match; without `answer`, answer with an error."""

    def fault(request: httpx.Request, correct_status: int, correct_answer: Any) -> tuple[int, Any]:
        if not matches(request):
            return correct_status, correct_answer
        return status, {"error": "no"} if answer is None else answer

    return fault


def replace_containing(word: bytes, status: int = 400, answer: Any = None) -> AnswerFault:
    """Replace the answer to every request with `word` in its body."""
    return replace_when(lambda request: word in request.content, status, answer)


def replace_at(path: str, status: int = 404, answer: Any = None, *, method: str = "") -> AnswerFault:
    """Replace the answer to every request on a path that contains `path`."""
    return replace_when(lambda r: path in r.url.path and method in ("", r.method), status, answer)


def change_body(change: Callable[[Json], object]) -> RequestFault:
    """Change the body of requests whose body is a JSON object."""

    def fault(request: httpx.Request) -> httpx.Request:
        if not request.content.startswith(b"{"):
            return request
        try:
            content = json.loads(request.content)
        except ValueError:
            return request
        change(content)
        headers = {name: value for name, value in request.headers.items() if name != "content-length"}
        return httpx.Request(request.method, request.url, headers=headers, content=json.dumps(content).encode())

    return fault


def detail_errors(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    """Answer errors as FastAPI does, which Triton's client cannot read."""
    return (status, {"detail": "no"}) if status >= 400 else (status, answer)


def server_error_for_bad_json(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    return (500, answer) if request.content.endswith(b"[") else (status, answer)


def change_messages(method: str, change: Callable[[Any], object]) -> CallFault:
    def change_call(called: str, _: Any, reply: Reply) -> None:
        if called == method:
            for answer in reply.messages:
                change(answer)

    return change_call


def without_error_text(called: str, request: Any, reply: Reply) -> None:
    reply.text = ""
