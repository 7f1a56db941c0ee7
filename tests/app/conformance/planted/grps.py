"""Faults in an engine of GRPS over HTTP."""

from typing import Any

import httpx

from tests.app.conformance.engines import Fault, Spoil
from tests.app.conformance.planted.spoiling import answers, headed, where

PREDICT = "/infer/predict"
SUCCESS = {"status": {"code": 200, "msg": "OK", "status": "SUCCESS"}, "str_data": "[]"}


def failure(code: int, text: str = "no") -> dict[str, Any]:
    return {"status": {"code": code, "msg": text, "status": "FAILURE"}}


def predicting(word: bytes, status: int = 200, answer: Any = SUCCESS, *, query: str = "") -> Spoil:
    """Another answer to a prediction with `word` in its body, and `query` in its query."""
    return where(
        lambda r: r.url.path.endswith(PREDICT) and word in r.content and query in str(r.url.query), status, answer
    )


def posted(content: bytes) -> Spoil:
    return where(lambda r: r.url.path.endswith(PREDICT) and r.content == content, 200, SUCCESS)


def at(path: str, status: int, answer: Any) -> Spoil:
    return where(lambda r: r.url.path.endswith(path), status, answer)


def two_kinds(answer: Any) -> None:
    answer["gmap" if "gmap" not in answer else "str_data"] = {}


def too_few(answer: Any) -> None:
    for tensor in answer.get("gtensors", {}).get("tensors", ()):
        tensor["flat_float32"].pop()


def more(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    """Numbers that are nested are misread."""
    if status == 200 and b'"ndarray"' in request.content:
        answer["gtensors"]["tensors"][0]["flat_float32"][0] += 1
    return status, answer


def nested(answer: Any) -> None:
    if "ndarray" in answer:
        answer["ndarray"] = [answer["ndarray"]]


def silent(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    if status >= 400 and request.url.path.endswith(PREDICT):
        answer["status"]["msg"] = ""
    return status, answer


def always_200(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    """As GRPS's C++ server does."""
    return (200 if request.url.path.endswith(PREDICT) else status), answer


def blaming_itself(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    """As GRPS's Python server does."""
    return (500, failure(500)) if request.content.endswith(b": ") else (status, answer)


def one_model(request: httpx.Request) -> httpx.Request:
    """The query is not read, but where the message names a model, too."""
    if b'"model"' in request.content or "conform-unknown" not in str(request.url):
        return request
    url = request.url.copy_remove_param("model")
    return httpx.Request(request.method, url, headers=request.headers, content=request.content)


def unknown_code(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    return (500, failure(500)) if status == 404 and b"conform-unknown" in request.content else (status, answer)


def separated(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    """Commas between the messages of a stream."""
    if "streaming" in str(request.url) and isinstance(answer, bytes):
        return status, b"},{".join(part for part in answer.split(b"}{")) if b"}{" in answer else answer + b","
    return status, answer


def unmarked(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    if "streaming" in str(request.url) and status == 200:
        answer["status"]["status"] = "UNKNOWN"
    return status, answer


SPOILT: dict[str, tuple[str, str, Spoil]] = {
    "live without a flag": ("detector", "GRPS-001", answers(lambda a: a["status"].pop("status"), "/health/live")),
    "never ready": ("detector", "GRPS-002", at("/health/ready", 503, failure(503))),
    "always ready": ("detector", "GRPS-003", at("/health/ready", 200, SUCCESS)),
    "not ready is 200": ("detector", "GRPS-004", lambda r, s, a: (200, a) if r.url.path.endswith("ready") else (s, a)),
    "no YAML": ("detector", "GRPS-005", answers(lambda a: a.update(str_data="a: [b: c"), "/metadata/server")),
    "no status": ("detector", "GRPS-006", answers(lambda a: a.pop("status"), PREDICT)),
    "two kinds of data": ("detector", "GRPS-007", answers(two_kinds, PREDICT)),
    "JSON as text": ("detector", "GRPS-008", headed(PREDICT, content_type="text/html")),
    "too few elements": ("half_plus_two", "GRPS-009", answers(too_few, PREDICT)),
    "names alone": ("half_plus_two", "GRPS-010", predicting(b'"dtype":7', 400, failure(400))),
    "nested numbers misread": ("half_plus_two", "GRPS-011", more),
    "nested once more": ("half_plus_two", "GRPS-012", answers(nested, PREDICT)),
    "nothing is nested": ("detector", "GRPS-013", where(
        lambda r: "return-ndarray" in str(r.url) and "streaming" not in str(r.url), 200, SUCCESS)),
    "no bytes": ("detector", "GRPS-014", where(
        lambda r: r.headers.get("content-type") == "application/octet-stream", 415, failure(415))),
    "any model": ("detector", "GRPS-015", predicting(b"conform-unknown")),
    "unknown models are 500": ("detector", "GRPS-016", unknown_code),
    "the query first": ("detector", "GRPS-018", where(
        lambda r: "conform-unknown" in str(r.url) and b'"model"' in r.content, 404, failure(404))),
    "anything is JSON": ("detector", "GRPS-019", where(lambda r: r.content.endswith(b": "), 200, SUCCESS)),
    "bad JSON, 500": ("detector", "GRPS-020", blaming_itself),
    "no data, 200": ("detector", "GRPS-021", predicting(b'"conform_unknown"')),
    "no body, 200": ("detector", "GRPS-022", posted(b"")),
    "any type": ("detector", "GRPS-023", where(
        lambda r: r.headers.get("content-type") == "image/png", 200, SUCCESS)),
    "bytes in JSON": ("detector", "GRPS-024", predicting(b'"bin_data"')),
    "without a word": ("detector", "GRPS-025", silent),
    "always 200": ("detector", "GRPS-026", always_200),
    "no YAML of a model": ("detector", "GRPS-027", answers(lambda a: a.update(str_data="["), "/metadata/model")),
    "metadata of anything": ("detector", "GRPS-028", where(
        lambda r: r.url.path.endswith("/metadata/model") and b"conform-unknown" in r.content, 200, SUCCESS)),
    "a stream without flags": ("detector", "GRPS-029", unmarked),
    "a nested stream": ("detector", "GRPS-030", where(
        lambda r: "return-ndarray" in str(r.url) and "streaming" in str(r.url), 200, SUCCESS)),
}  # fmt: skip
"""The model that an answer is spoilt of, the clause that names it, and how."""

_NAME = "grps"

FAULTS: dict[str, Fault] = {
    **{name: Fault(protocol=_NAME, model=m, clause=c, spoil=spoil) for name, (m, c, spoil) in SPOILT.items()},
    "the query passed over": Fault(protocol=_NAME, model="detector", clause="GRPS-017", rewrite=one_model),
    "commas in a stream": Fault(protocol=_NAME, model="vlm", clause="GRPS-029", spoil=separated, raw=True),
}
