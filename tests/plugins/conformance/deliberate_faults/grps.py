"""Deliberate faults in an engine of GRPS over HTTP."""

from typing import Any

import httpx

from tests.plugins.conformance.deliberate_faults.spoiling import (
    change_answers,
    replace_at,
    replace_field,
    replace_when,
    set_headers,
)
from tests.plugins.conformance.engines import AnswerFault, AnswerFaults, RequestFaults, faults_of

PREDICT = "/infer/predict"
SUCCESS = {"status": {"code": 200, "msg": "OK", "status": "SUCCESS"}, "str_data": "[]"}


def failure(code: int, text: str = "no") -> dict[str, Any]:
    return {"status": {"code": code, "msg": text, "status": "FAILURE"}}


def replace_prediction(word: bytes, status: int = 200, answer: Any = SUCCESS) -> AnswerFault:
    """Replace the answer to predictions with `word` in the body."""
    return replace_when(lambda r: r.url.path.endswith(PREDICT) and word in r.content, status, answer)


def too_few(answer: Any) -> None:
    for tensor in answer.get("gtensors", {}).get("tensors", ()):
        tensor["flat_float32"].pop()


def plus_one(answer: Any) -> None:
    answer["gtensors"]["tensors"][0]["flat_float32"][0] += 1


def without_message(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    if status >= 400 and request.url.path.endswith(PREDICT):
        answer["status"]["msg"] = ""
    return status, answer


def without_model_query(request: httpx.Request) -> httpx.Request:
    """Ignore the model in the query, unless the message also names a model."""
    if b'"model"' in request.content or "conform-unknown" not in str(request.url):
        return request
    url = request.url.copy_remove_param("model")
    return httpx.Request(request.method, url, headers=request.headers, content=request.content)


def comma_separated_stream(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
    if "streaming" in str(request.url) and isinstance(answer, bytes):
        return status, b"},{".join(part for part in answer.split(b"}{")) if b"}{" in answer else answer + b","
    return status, answer


ANSWER_FAULTS: AnswerFaults = {
    "live without a flag": ("GRPS-S01", change_answers(lambda a: a["status"].pop("status"), "/health/live")),
    "never ready": ("GRPS-S02", replace_at("/health/ready", 503, failure(503))),
    "always ready": ("GRPS-S03", replace_at("/health/ready", 200, SUCCESS)),
    "not ready is 200": ("GRPS-004", lambda r, s, a: (200, a) if r.url.path.endswith("ready") else (s, a)),
    "no YAML": ("GRPS-S04", change_answers(lambda a: a.update(str_data="a: [b: c"), "/metadata/server")),
    "no status": ("GRPS-S05", change_answers(lambda a: a.pop("status"), PREDICT)),
    "two kinds of data": ("GRPS-S06",
        change_answers(lambda a: a.update({"str_data" if "gmap" in a else "gmap": {}}), PREDICT)),
    "JSON as text": ("GRPS-008", set_headers(PREDICT, content_type="text/html")),
    "too few elements": ("GRPS-S07", change_answers(too_few, PREDICT), "half_plus_two"),
    "only datatype names accepted": ("GRPS-010", replace_prediction(b'"dtype":7', 400, failure(400)), "half_plus_two"),
    "nested numbers misread": ("GRPS-011",
        change_answers(plus_one, matches=lambda r: b'"ndarray"' in r.content), "half_plus_two"),
    "nested once more": ("GRPS-012", replace_field("ndarray", lambda value: [value], PREDICT), "half_plus_two"),
    "ndarray ignored": ("GRPS-013",
        replace_when(lambda r: "return-ndarray" in str(r.url) and "streaming" not in str(r.url), 200, SUCCESS)),
    "no bytes": ("GRPS-014",
        replace_when(lambda r: r.headers.get("content-type") == "application/octet-stream", 415, failure(415))),
    "any model accepted": ("GRPS-S08", replace_prediction(b"conform-unknown")),
    "unknown models are 500": ("GRPS-S09",
        lambda r, s, a: (500, failure(500)) if s == 404 and b"conform-unknown" in r.content else (s, a)),
    "query before body": ("GRPS-018",
        replace_when(lambda r: "conform-unknown" in str(r.url) and b'"model"' in r.content, 404, failure(404))),
    "anything is JSON": ("GRPS-019", replace_when(lambda r: r.content.endswith(b": "), 200, SUCCESS)),
    "bad JSON, 500": ("GRPS-020",  # as GRPS's Python server does
        replace_when(lambda r: r.content.endswith(b": "), 500, failure(500))),
    "no data, 200": ("GRPS-021", replace_prediction(b'"conform_unknown"')),
    "no body, 200": ("GRPS-022", replace_when(lambda r: r.url.path.endswith(PREDICT) and not r.content, 200, SUCCESS)),
    "any Content-Type accepted": ("GRPS-023",
        replace_when(lambda r: r.headers.get("content-type") == "image/png", 200, SUCCESS)),
    "bytes in JSON": ("GRPS-024", replace_prediction(b'"bin_data"')),
    "errors without a message": ("GRPS-025", without_message),
    "always 200": ("GRPS-026",  # as GRPS's C++ server does
        lambda r, s, a: (200 if r.url.path.endswith(PREDICT) else s, a)),
    "no YAML of a model": ("GRPS-S10", change_answers(lambda a: a.update(str_data="["), "/metadata/model")),
    "metadata of anything": ("GRPS-S11",
        replace_when(lambda r: r.url.path.endswith("/model") and b"conform-unknown" in r.content, 200, SUCCESS)),
    "a stream without flags": ("GRPS-029",
        change_answers(lambda a: a["status"].update(status="UNKNOWN"), matches=lambda r: "streaming" in str(r.url))),
    "ndarray in a stream accepted": ("GRPS-030",
        replace_when(lambda r: "return-ndarray" in str(r.url) and "streaming" in str(r.url), 200, SUCCESS)),
}  # fmt: skip
_STREAM_FAULTS: AnswerFaults = {"commas in a stream": ("GRPS-029", comma_separated_stream)}
_REQUEST_FAULTS: RequestFaults = {"query ignored": ("GRPS-017", without_model_query)}

FAULTS = {
    **faults_of("grps", "detector", ANSWER_FAULTS),
    **faults_of("grps", "vlm", _STREAM_FAULTS, raw=True),
    **faults_of("grps", "detector", _REQUEST_FAULTS, "change_request"),
}
