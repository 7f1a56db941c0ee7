"""Recording by a real server, over every protocol."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import grpc
import httpx
import pytest

from app.plugins.grps.proto import message_class
from app.plugins.recording.images import image_path
from tests.installed.environments import linked_environment
from tests.plugins.recording.contents import Row, contents
from tests.support.data.chariot import image_input
from tests.support.data.images import encode_base64
from tests.support.servers.server_process import ROOT, ServerProcess, run_server

pytestmark = pytest.mark.slow

CLASSIFIER = str(ROOT / "fixtures/models/classifier")
PHOTOGRAPH = (ROOT / "fixtures" / "images" / "scene.jpg").read_bytes()
METADATA = json.dumps([{"key": "camera", "type": "str", "value": "north"}])
TRIAL = {"charioteer-trial": "true"}
TENSOR = image_input(encode_base64(PHOTOGRAPH), metadata=METADATA)


class Client:
    """Send requests with chosen ids, so that tests find their recordings."""

    def __init__(self, server: ServerProcess) -> None:
        self._http = httpx.Client(timeout=60)
        self.server = server
        self.close = self._http.close

    def post(self, request_id: str, path: str, body: object, base: str = "", **headers: str) -> int:
        url = f"{base or self.server.address}{path}"
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        all_headers = {"content-type": "application/json", "x-request-id": request_id, **headers}
        return self._http.post(url, content=content, headers=all_headers).status_code

    def call(self, request_id: str, method: str, message: Any, **metadata: str) -> int:
        """Return the number of answers of a call over gRPC."""
        all_metadata = [("x-request-id", request_id), *metadata.items()]
        with cast("Any", grpc).insecure_channel(self.server.grpc_address) as channel:
            stub = channel.unary_stream(method)
            return len(list(stub(message.SerializeToString(), metadata=all_metadata, timeout=60)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recorded")


@pytest.fixture(scope="module")
def recorded(folder: Path) -> Iterator[dict[str, list[Row]]]:
    """Return the rows of one request of each kind, by request id."""
    store, images = folder / "store.db", folder / "images"
    options = ("--record", str(store), "--record-images", str(images))
    with run_server(*options, program=linked_environment().command) as server:
        with closing(Client(server)) as client:
            send_requests(client)
        assert server.stop() == 0
    rows_by_id: dict[str, list[Row]] = {}
    for row in contents(str(store)):
        rows_by_id.setdefault(row["request_id"], []).append(row)
    yield rows_by_id
    shutil.rmtree(folder)


def send_requests(client: Client) -> None:
    detector = "/v2/models/detector/infer"
    v1 = {"instances": [{"image": {"b64": encode_base64(PHOTOGRAPH)}}]}
    base = {"chariot-inference-base-id": "base"}
    assert client.post("chariot", "/v2/models/m-detector/infer", {"inputs": [TENSOR, TENSOR]}, **base) == 200
    assert client.post("v2", detector, {"inputs": [TENSOR]}) == 200
    assert client.post("v1", "/v1/models/detector:predict", v1, **TRIAL) == 200
    explained = {**v1, "parameters": {"samples": 20, "grid": 4}}
    assert client.post("explained", "/v1/models/detector:explain", explained) == 200
    halves, port = {"instances": [1.0, 2.0]}, client.server.tensorflow_serving_address
    assert client.post("tfs", "/v1/models/half_plus_two:predict", halves, base=port) == 200
    grps = {"content-type": "application/octet-stream"}
    assert client.post("grps", "/grps/v1/infer/predict?model=detector", PHOTOGRAPH, **grps) == 200
    image = {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{encode_base64(PHOTOGRAPH)}"}}
    messages = [{"role": "user", "content": [image, {"type": "text", "text": "What is this?"}]}]
    chat = {"model": "vlm", "messages": messages, "max_completion_tokens": 4, "stream": True}
    assert client.post("streamed", "/openai/v1/chat/completions", chat) == 200
    assert client.post("missing", "/v2/models/missing/infer", {"inputs": [TENSOR]}) == 404
    assert client.post("broken", detector, b"{") == 400
    tensor = {"name": "image", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [PHOTOGRAPH]}}
    request = message_class("inference.ModelInferRequest")(model_name="detector", inputs=[tensor])
    assert client.call("grpc", "/inference.GRPCInferenceService/ModelInfer", request, **TRIAL) == 1
    message = message_class("grps.protos.v1.GrpsMessage")(model="detector", bin_data=PHOTOGRAPH)
    assert client.call("grps-grpc", "/grps.protos.v1.GrpsService/Predict", message) == 1
    assert client.call("grps-stream", "/grps.protos.v1.GrpsService/PredictStreaming", message) == 1


EXPECTED = {
    "chariot": ("chariot-v2-kserve", "detector", "OBJECT_DETECTION", None),
    "v2": ("kserve-v2", "detector", "OBJECT_DETECTION", None),
    "v1": ("kserve-v1", "detector", "OBJECT_DETECTION", None),
    "explained": ("kserve-v1", "detector", "OBJECT_DETECTION", None),
    "tfs": ("tensorflow-serving", "half_plus_two", "TENSOR", None),
    "grps": ("grps", "detector", "OBJECT_DETECTION", None),
    "streamed": ("openai", "vlm", "IMAGE_TEXT_TO_TEXT", None),
    "missing": ("kserve-v2", "missing", "", "model_not_found"),
    "broken": ("kserve-v2", "detector", "", "invalid_request"),
    "grpc": ("kserve-v2", "detector", "OBJECT_DETECTION", None),
    "grps-grpc": ("grps", "detector", "OBJECT_DETECTION", None),
    "grps-stream": ("grps", "detector", "OBJECT_DETECTION", None),
}


def test_every_request_is_recorded_once(recorded: dict[str, list[Row]]) -> None:
    assert set(recorded) == set(EXPECTED)
    for request_id, rows in recorded.items():
        protocol, *rest = EXPECTED[request_id]
        assert len(rows) == (2 if request_id == "chariot" else 1)
        for row in rows:
            assert row["protocol"].removesuffix("-grpc") == protocol
            assert [row[name] for name in ("model", "task_type", "error")] == rest


def test_all_protocols_record_the_same_detections(recorded: dict[str, list[Row]]) -> None:
    answers = [
        row for name in ("chariot", "v2", "v1", "grps", "grpc", "grps-grpc", "grps-stream") for row in recorded[name]
    ]
    records = {row["records"] for row in answers}
    assert len(records) == 1
    assert {"label", "score", "xmin", "ymin", "xmax", "ymax"} == set(json.loads(records.pop())[0])
    assert len({row["image_digest"] for row in answers}) == 1


def test_ids_metadata_and_request_kind_are_recorded(recorded: dict[str, list[Row]]) -> None:
    first, second = recorded["chariot"]
    assert (first["base_id"], first["input"], second["input"]) == ("base", 0, 1)
    assert json.loads(first["entries"]) == [["camera", "str", "north"]]
    assert [bool(recorded[name][0]["explanation"]) for name in ("v1", "explained")] == [False, True]
    reasons = [json.loads(recorded[name][0]["selection"])["reason"] for name in ("v1", "grpc", "v2")]
    assert reasons == ["trial", "trial", None]
    (answer,) = json.loads(recorded["streamed"][0]["records"])
    assert answer["prompt"] == "What is this?"
    assert answer["answer"]
    assert "missing" in recorded["missing"][0]["message"]


def test_image_is_stored_under_its_digest(recorded: dict[str, list[Row]], folder: Path) -> None:
    row = recorded["v2"][0]
    assert row["image_size"] == len(PHOTOGRAPH)
    assert image_path(folder / "images", row["image_digest"]).read_bytes() == PHOTOGRAPH
