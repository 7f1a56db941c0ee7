"""Faults in HTTP answers and requests and in gRPC replies that several protocols share."""

import json
from collections.abc import Callable
from typing import Any

import httpx

from tests.plugins.conformance.engines import AnswerFault, CallFault, Reply, RequestFault, WithHeaders

Json = dict[str, Any]


def change_answers(
    change: Callable[[Any], object], path: str = "", matches: Callable[[httpx.Request], object] = lambda _: True
) -> AnswerFault:
    """Change every answer of status 200 to requests that match, on a path that contains `path`."""

    def fault(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        if status == 200 and path in request.url.path and not isinstance(answer, bytes) and matches(request):
            change(answer)
        return status, answer

    return fault


def change_bytes(change: Callable[[bytes], bytes]) -> AnswerFault:
    """Change every answer that is not JSON."""
    return lambda _, status, answer: (status, change(answer) if isinstance(answer, bytes) else answer)


def change_each(names: str, change: Callable[[Any], object], path: str = "") -> AnswerFault:
    """Change each item of the list `names` of answers that have it, as `change_answers` does."""
    return change_answers(lambda answer: [change(item) for item in answer.get(names) or ()], path)


def replace_field(name: str, change: Callable[[Any], object], path: str = "") -> AnswerFault:
    """Replace the value of a field of answers that have it, as `change_answers` does."""
    return change_answers(lambda answer: answer.update({name: change(answer[name])}) if name in answer else None, path)


def rename_field(old: str, new: str, path: str = "") -> AnswerFault:
    """Rename a field of answers that have it, as `change_answers` does."""
    return change_answers(lambda answer: answer.update({new: answer.pop(old)}) if old in answer else None, path)


def set_headers(path: str, **headers: str | None) -> AnswerFault:
    """Replace headers of every answer of status 200 on a path that contains `path`."""
    replaced = {name.replace("_", "-"): value for name, value in headers.items()}

    def fault(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        matches = status == 200 and path in request.url.path
        return status, WithHeaders(answer, replaced) if matches else answer

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


def errors_in(field: str) -> AnswerFault:
    """Answer errors with a text in `field`; FastAPI's is `detail`, which Triton's client cannot read."""
    return lambda _, status, answer: (status, {field: "no"} if status >= 400 else answer)


def server_error_for_bad_json(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    return (500, answer) if request.content.endswith(b"[") else (status, answer)


def change_messages(
    method: str, change: Callable[[Any], object], matches: Callable[[Any], object] = lambda _: True
) -> CallFault:
    """Change the messages of a method's replies to requests that match."""

    def change_call(called: str, request: Any, reply: Reply) -> None:
        if called == method and matches(request):
            for answer in reply.messages:
                change(answer)

    return change_call


def replace_reply(method: str, matches: Callable[[Any], object], status: int, *messages: Any) -> CallFault:
    """Replace the status and messages of a method's replies to requests that match."""

    def change_call(called: str, request: Any, reply: Reply) -> None:
        if called == method and matches(request):
            reply.replace(status, *messages)

    return change_call


def without_error_text(called: str, request: Any, reply: Reply) -> None:
    reply.text = ""
