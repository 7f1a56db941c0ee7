"""Answers of a whole server are those of ``golden.json``: headers, compression, streams, and errors before a protocol.

The golden cases in fixtures/wire have what each protocol answers.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.models.model_folders import write_model
from tests.support.servers.server_process import ROOT, run_server

IMAGE = (ROOT / "fixtures/images/scene.jpg").read_bytes()
TEXT = base64.b64encode(IMAGE).decode()
JSON, STREAM = "application/json", "application/octet-stream"
CHAT, QUESTION = "/v1/chat/completions", "What is in the picture?"

VLM = """
class Model:
    def predict(self, image, prompt):
        yield "th"
        yield "ree"

    def explain(self, inputs, predictions):
        return [1000 * "why" for _ in inputs]
"""

Case = tuple[str, str, bytes, Mapping[str, str]]
"""Method, path, body and headers."""


def json_body(**members: object) -> bytes:
    return json.dumps(members).encode()


def post(path: str, body: bytes, content_type: str = JSON, **headers: str) -> Case:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return ("POST", path, body, {"content-type": content_type, **fields})


def v2(path: str, **parameters: object) -> Case:
    tensor = {"name": "image", "datatype": "BYTES", "shape": [1], "data": [TEXT], "parameters": parameters}
    return post(path, json_body(inputs=[tensor]))


def infer(**headers: str) -> Case:
    return post(V2, BODY, **headers)


def chat_body(**members: object) -> bytes:
    image = {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{TEXT}"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": QUESTION}, image]}]
    return json_body(**{"model": "vlm", "messages": messages, **members})


def chat(**members: object) -> Case:
    return post(CHAT, chat_body(**members))


def rows(path: str) -> Case:
    return post(path, json_body(instances=[{"b64": TEXT}]))


CHARIOT, V2, V1, GRPS = "/v2/models/m-detector/infer", "/v2/models/detector/infer", "/v1/models/", "/grps/v1/"
BODY = v2(V2)[2]
INSTANCE = {"image": {"b64": TEXT}}
TOO_LARGE = b" " * 3_000_001
MAIN: Mapping[str, Case] = {
    "chariot": v2(CHARIOT, action="detect", metadata='{"a": 1}'),
    "chariot with slashes": v2("//v2/models//m-detector/infer", action="detect"),
    "chariot long": v2(CHARIOT, metadata="m" * 2000),
    "kserve v2": infer(),
    "kserve v2 late": infer(x_request_timeout_ms="0"),
    "kserve v1": post(f"{V1}detector:predict", json_body(instances=[INSTANCE])),
    "kserve v1 without a model": post(f"{V1}:predict", json_body(instances=[INSTANCE])),
    "explain of a text model": post(f"{V1}vlm:explain", json_body(instances=[INSTANCE])),
    "explain with an invalid body": post(f"{V1}detector:explain", b"{"),
    "grps": post(f"{GRPS}infer/predict?model=detector", IMAGE, STREAM),
    "grps stream": post(f"{GRPS}infer/predict?model=detector&streaming=true", IMAGE, STREAM),
    "invalid JSON": post(CHARIOT, b"{"),
    "chat": chat(),
    "chat stream": chat(stream=True),
    "long chat stream": chat(stream=True, padding="x" * 300_000),
    "chat without a model": chat(model=None),
    "stream of an unknown model": chat(model="missing", stream=True),
    "too large": post(V2, TOO_LARGE),
    "options": ("OPTIONS", V2, b"", {}),
    "unknown path": post("/v2/models/detector/fly", BODY),
    "unknown path of grps": post(f"{GRPS}fly", b""),
    "foreign host": infer(host="example.com"),
    "cross-site": post(V2, BODY, "text/plain", origin="http://example.com", sec_fetch_site="cross-site"),
    "cross-site for openai": post(CHAT, chat_body(), "text/plain", sec_fetch_site="cross-site"),
    "allowed origin": infer(origin="https://app.example"),
    "other origin": infer(origin="https://other.example"),
    "allowed origin and an error": post(V2, b"{", origin="https://app.example"),
    "preflight": ("OPTIONS", V2, b"", {"origin": "https://app.example", "access-control-request-method": "POST"}),
}
TENSORFLOW_SERVING: Mapping[str, Case] = {
    "predict": rows(f"{V1}detector:predict"),
    "invalid JSON": post(f"{V1}detector:predict", b"{"),
    "capitals": rows("/V1/Models/detector:predict"),
    "encoded": rows(f"{V1}det%65ctor:predict"),
    "query": rows(f"{V1}detector:predict?a=1"),
    "too large": post(f"{V1}detector:predict", TOO_LARGE),
    "options": ("OPTIONS", f"{V1}detector:predict", b"", {"origin": "http://a.example"}),
    "outside": post(V2, b"{}"),
}
CASES = {
    **{f"main: {name}": case for name, case in MAIN.items()},
    **{f"tensorflow-serving: {name}": case for name, case in TENSORFLOW_SERVING.items()},
}
GOLDEN: Mapping[str, Mapping[str, Any]] = json.loads(Path(__file__).with_name("golden.json").read_text())
"""Status, text, headers that differ from `USUAL_HEADERS`, and `gzip_headers` that differ from these for gzip."""

IGNORED_HEADERS = ("date", "content-length", "connection", "transfer-encoding")
SENT_IDS = {"chariot-inference-base-id": "base", "x-request-id": "0123456789"}
USUAL_HEADERS = {**SENT_IDS, "content-type": JSON}
NUMBER = re.compile(r"(?<![\w.\"])-?\d+\.\d+(?:e-?\d+)?")

Clients = Mapping[str, httpx.Client]


@pytest.fixture(scope="module")
def clients(small_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """Yield a client of each port of a server process, whose model `vlm` streams the same text for each question."""
    models = tmp_path_factory.mktemp("models")
    for folder in small_models.iterdir():
        (models / folder.name).symlink_to(folder.resolve())
    write_model(models / "vlm", VLM, task_type="IMAGE_TEXT_TO_TEXT")
    options = ("--model-repository", str(models), "--allow-code", "--max-request-bytes", "3000000")
    origins = ("--tensorflow-serving-cors", "*", "--cors-origins", "https://app.example")
    with run_server(*options, *origins) as server, ExitStack() as stack:
        addresses = {"main": server.address, "tensorflow-serving": server.tensorflow_serving_address}
        yield {
            port: stack.enter_context(httpx.Client(base_url=address, timeout=120, trust_env=False))
            for port, address in addresses.items()
        }


def test_every_golden_answer_has_a_case() -> None:
    assert CASES.keys() == GOLDEN.keys()


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
@pytest.mark.parametrize("name", CASES)
def test_answer_of_the_server_equals_the_golden_one(clients: Clients, name: str, encoding: str) -> None:
    (method, path, body, headers), golden = CASES[name], GOLDEN[name]
    fields = {**SENT_IDS, "accept-encoding": encoding, **headers}
    response = clients[name.partition(":")[0]].request(method, path, content=body, headers=fields)
    expected: dict[str, str | None] = {**USUAL_HEADERS, **golden.get("headers", {})}
    expected |= golden.get("gzip_headers", {}) if encoding == "gzip" else {}
    kept = {name: value for name, value in response.headers.items() if name not in IGNORED_HEADERS}
    assert response.status_code == golden["status"]
    assert kept == {name: value for name, value in expected.items() if value is not None}
    text = response.content.decode("utf-8", "backslashreplace")
    texts = re.sub(r'"created":\d+', '"created":0', text)[:1500], golden["text"]
    assert NUMBER.sub("#", texts[0]) == NUMBER.sub("#", texts[1])
    numbers, golden_numbers = ([float(number) for number in NUMBER.findall(text)] for text in texts)
    # Their last digits depend on the processor.
    assert numbers == pytest.approx(golden_numbers, rel=1e-3, abs=1e-3)
