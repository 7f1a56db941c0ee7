"""Requests whose answers are frozen in ``golden.json``: every protocol and every way to fail before and in it."""

import base64
import gzip
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.support.servers.server_process import ROOT

ANSWERS = Path(__file__).with_name("golden.json")
IMAGE = (ROOT / "fixtures/images/scene.jpg").read_bytes()
TEXT = base64.b64encode(IMAGE).decode()
JSON = "application/json"
CHAT, QUESTION = "/v1/chat/completions", "What is in the picture?"

Case = tuple[str, str, bytes, Mapping[str, str]]
"""Method, path, body and headers."""

_IGNORED_HEADERS = ("date", "content-length", "connection", "transfer-encoding", "ce-id", "ce-time")
_SENT_IDS = {"chariot-inference-base-id": "base", "x-request-id": "0123456789"}
_USUAL_HEADERS = {**_SENT_IDS, "content-type": "application/json"}
_MAX_CHARACTERS = 1500
_TIMESTAMP = re.compile(r'"created":\d+')
_NUMBER = re.compile(r"(?<![\w.\"])-?\d+\.\d+(?:e-?\d+)?")
_TOLERANCE = 1e-3


def json_body(**members: object) -> bytes:
    return json.dumps(members).encode()


def chat_body(**members: object) -> bytes:
    image = {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{TEXT}"}}
    content = [{"type": "text", "text": QUESTION}, image]
    return json_body(**{"model": "vlm", "messages": [{"role": "user", "content": content}], **members})


def _tensor(**parameters: object) -> bytes:
    tensor = {"name": "image", "datatype": "BYTES", "shape": [1], "data": [TEXT], "parameters": parameters}
    return json_body(inputs=[tensor])


def _post(path: str, body: bytes, content_type: str = JSON, **headers: str) -> Case:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return ("POST", path, body, {"content-type": content_type, **fields})


CHARIOT_BODY = _tensor(action="detect", metadata='{"a": 1}')
LONG_BODY = _tensor(metadata="m" * 2000)
V2_BODY = _tensor()
_V2, _V1 = "/v2/models/detector/infer", "/v1/models/detector:predict"
_INSTANCES = json_body(instances=[{"image": {"b64": TEXT}}])
_FEW_SAMPLES = json_body(instances=[{"image": {"b64": TEXT}}], parameters={"samples": 8})
_GENERATE = json_body(text_input=QUESTION, image=TEXT)

MAIN: Mapping[str, Case] = {
    "chariot": _post("/v2/models/m-detector/infer", CHARIOT_BODY),
    "chariot with a slash": _post("/v2/models/m-detector/infer/", CHARIOT_BODY),
    "chariot with slashes": _post("//v2/models//m-detector/infer", CHARIOT_BODY),
    "chariot version": _post("/v2/models/m-detector/versions/1/infer", CHARIOT_BODY),
    "chariot long": _post("/v2/models/m-detector/infer", LONG_BODY),
    "kserve v2": _post(_V2, V2_BODY),
    "kserve v2 compressed": _post(_V2, gzip.compress(V2_BODY), content_encoding="gzip"),
    "kserve v2 badly compressed": _post(_V2, V2_BODY, content_encoding="gzip"),
    "kserve v2 late": _post(_V2, V2_BODY, x_request_timeout_ms="0"),
    "kserve v1": _post(_V1, _INSTANCES),
    "kserve v1 image": _post(_V1, IMAGE, "image/jpeg"),
    "kserve v1 event": _post(_V1, _INSTANCES, ce_id="1", ce_type="t", ce_source="s", ce_specversion="1.0"),
    "kserve v1 without a verb": _post("/v1/models/detector", _INSTANCES),
    "kserve v1 without a model": _post("/v1/models/:predict", _INSTANCES),
    "explain of a text model": _post("/v1/models/vlm:explain", _FEW_SAMPLES),
    "explain with an invalid body": _post("/v1/models/detector:explain", b"{"),
    "grps": _post("/grps/v1/infer/predict?model=detector", IMAGE, "application/octet-stream"),
    "grps without a model": _post("/grps/v1/infer/predict", IMAGE, "application/octet-stream"),
    "grps stream": _post("/grps/v1/infer/predict?model=detector&streaming=true", IMAGE, "application/octet-stream"),
    "grps stream and ndarray": _post(
        "/grps/v1/infer/predict?streaming=true&return-ndarray=true", IMAGE, "application/octet-stream"
    ),
    "invalid JSON": _post("/v2/models/m-detector/infer", b"{"),
    "empty body": _post("/v2/models/m-detector/infer", b""),
    "unknown model": _post("/v2/models/missing/infer", V2_BODY),
    "generate": _post("/v2/models/vlm/generate", _GENERATE),
    "generate stream": _post("/v2/models/vlm/generate_stream", _GENERATE),
    "generate stream of a detector": _post("/v2/models/detector/generate_stream", _GENERATE),
    "chat": _post(CHAT, chat_body()),
    "chat stream": _post(CHAT, chat_body(stream=True)),
    "long chat stream": _post(CHAT, chat_body(stream=True, padding="x" * 300_000)),
    "chat with an invalid body": _post(CHAT, b"{"),
    "chat without a model": _post(CHAT, chat_body(model=None)),
    "stream of an unknown model": _post(CHAT, chat_body(model="missing", stream=True)),
    "too large": _post(_V2, b" " * 3_000_001),
    "too large for openai": _post(CHAT, b" " * 3_000_001),
    "too large for grps": _post("/grps/v1/infer/predict", b" " * 3_000_001, "application/octet-stream"),
    "wrong method": ("GET", _V2, b"", {}),
    "wrong method of openai": ("GET", CHAT, b"", {}),
    "options": ("OPTIONS", _V2, b"", {}),
    "unknown path": _post("/v2/models/detector/fly", V2_BODY),
    "unknown path of grps": _post("/grps/v1/fly", b""),
    "ready": ("GET", "/ready", b"", {}),
    "head of ready": ("HEAD", "/ready", b"", {}),
    "v2 models": ("GET", "/v2/models", b"", {}),
    "foreign host": _post(_V2, V2_BODY, host="example.com"),
    "cross-site": _post(_V2, V2_BODY, "text/plain", origin="http://example.com", sec_fetch_site="cross-site"),
    "cross-site for openai": _post(CHAT, chat_body(), "text/plain", sec_fetch_site="cross-site"),
    "allowed origin": _post(_V2, V2_BODY, origin="https://app.example"),
    "other origin": _post(_V2, V2_BODY, origin="https://other.example"),
    "allowed origin and an error": _post(_V2, b"{", origin="https://app.example"),
    "preflight": ("OPTIONS", _V2, b"", {"origin": "https://app.example", "access-control-request-method": "POST"}),
}

_PREDICT = json_body(instances=[{"b64": TEXT}])
_MODELS = "/v1/models"
TENSORFLOW_SERVING: Mapping[str, Case] = {
    "predict": _post(f"{_MODELS}/detector:predict", _PREDICT),
    "classify": _post(f"{_MODELS}/classifier:classify", json_body(examples=[{"image": {"b64": TEXT}}])),
    "invalid JSON": _post(f"{_MODELS}/detector:predict", b"{"),
    "unknown model": _post(f"{_MODELS}/missing:predict", _PREDICT),
    "version": _post(f"{_MODELS}/detector/versions/1:predict", _PREDICT),
    "capitals": _post("/V1/Models/detector:predict", _PREDICT),
    "encoded": _post(f"{_MODELS}/det%65ctor:predict", _PREDICT),
    "query": _post(f"{_MODELS}/detector:predict?a=1", _PREDICT),
    "too large": _post(f"{_MODELS}/detector:predict", b" " * 3_000_001),
    "status": ("GET", f"{_MODELS}/detector", b"", {}),
    "options": ("OPTIONS", f"{_MODELS}/detector:predict", b"", {"origin": "http://a.example"}),
    "outside": _post("/v2/models/detector/infer", b"{}"),
}

SERVER_ARGUMENTS: Sequence[str] = (
    *("--model-repository", "fixtures/models", "--tensorflow-serving-cors", "*", "--max-request-bytes", "3000000"),
    *("--cors-origins", "https://app.example"),
)
"""Of the server that these cases are for."""


def ask(client: httpx.Client, case: Case, encoding: str) -> dict[str, Any]:
    """Send a request, and return what its golden answer has: status, headers and text."""
    method, path, body, headers = case
    fields = {**_SENT_IDS, "accept-encoding": encoding, **headers}
    response = client.request(method, path, content=body, headers=fields)
    kept = {name: value for name, value in sorted(response.headers.items()) if name not in _IGNORED_HEADERS}
    text = response.content.decode("utf-8", "backslashreplace")
    text = _TIMESTAMP.sub('"created":0', text)[:_MAX_CHARACTERS]
    return {"status": response.status_code, "headers": kept, "text": text}


def difference(answer: Mapping[str, Any], golden: Mapping[str, Any]) -> str:
    """Return how an answer differs from the golden one, where numbers may differ in their last digits."""
    for part in ("status", "headers"):
        if answer[part] != golden[part]:
            return f"{part}: {answer[part]}, not {golden[part]}"
    texts = [answer["text"], golden["text"]]
    numbers = [[float(number) for number in _NUMBER.findall(text)] for text in texts]
    shapes = [_NUMBER.sub("#", text) for text in texts]
    if shapes[0] != shapes[1]:
        return f"text: {texts[0][:500]!r}, not {texts[1][:500]!r}"
    far = [pair for pair in zip(*numbers, strict=True) if abs(pair[0] - pair[1]) > _TOLERANCE * (1 + abs(pair[1]))]
    return f"numbers: {far[:5]}" if far else ""


PORTS: Mapping[str, Mapping[str, Case]] = {"main": MAIN, "tensorflow-serving": TENSORFLOW_SERVING}
"""The cases of each port."""


def golden_answers() -> Mapping[str, Mapping[str, Any]]:
    """Return the frozen answers by port and name, where `gzip_headers` has other headers for clients with gzip.

    The file has only headers that differ from `_USUAL_HEADERS`, with null for a missing one, and `gzip_headers` that
    differ from the others.
    """
    answers = json.loads(ANSWERS.read_text())
    for answer in answers.values():
        answer["headers"] = _changed(_USUAL_HEADERS, answer.get("headers", {}))
        answer["gzip_headers"] = _changed(answer["headers"], answer.get("gzip_headers", {}))
    return answers


def _changed(headers: Mapping[str, str], changes: Mapping[str, str | None]) -> Mapping[str, str]:
    return {name: value for name, value in sorted({**headers, **changes}.items()) if value is not None}
