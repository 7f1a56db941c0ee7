"""GRPS's stubs, compiled from the proto as its users do it, and requests: ``python -m tests.clients.with_grps``.

Its arguments are the address of the server, HOST:PORT of its gRPC and the proto. GRPS's own wheel of stubs is in no
registry. The calls are those of the test that its repository has for clients.
"""

import base64
import importlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.clients.checks import PICTURES, SCENE, SHAPE, run

grpc: Any = importlib.import_module("grpc")
protoc: Any = importlib.import_module("grpc_tools.protoc")
requests: Any = importlib.import_module("requests")


class Peer:
    """Both ways to the server."""

    def __init__(self, address: str, grpc_address: str, proto: Path) -> None:
        folder = tempfile.mkdtemp()
        arguments = [f"-I{proto.parent}", f"--python_out={folder}", f"--grpc_python_out={folder}", proto.name]
        assert protoc.main(["protoc", *arguments]) == 0
        sys.path.insert(0, folder)
        self.pb: Any = importlib.import_module("grps_pb2")
        self.stub: Any = importlib.import_module("grps_pb2_grpc").GrpsServiceStub(grpc.insecure_channel(grpc_address))
        self._root = f"{address}/grps/v1"

    def get(self, path: str) -> Any:
        """A message, told as JSON."""
        return requests.get(f"{self._root}/{path}", timeout=30).json()

    def post(self, path: str, **options: Any) -> Any:
        """The same, for a body."""
        return requests.post(f"{self._root}/{path}", timeout=60, **options)


def messages(response: Any) -> Iterator[Any]:
    """The messages of a stream as they come: JSON behind JSON."""
    held = ""
    for chunk in response.iter_content(None):
        held += chunk.decode()
        while held:
            try:
                message, end = json.JSONDecoder().raw_decode(held)
            except json.JSONDecodeError:
                break
            held = held[end:].lstrip()
            yield message
    assert not held


def labels(text: str) -> list[str]:
    """The labels of records as JSON."""
    return [each["label"] for each in json.loads(text)]


def check_http_calls(peer: Peer) -> None:
    for path in ("health/live", "health/online", "health/ready"):
        assert peer.get(path)["status"]["status"] == "SUCCESS"
    told = peer.post("infer/predict", json={"model": "greeter", "str_data": "hello grps."}).json()
    assert told["str_data"] == "Hello, hello grps.!"
    assert told["status"]["status"] == "SUCCESS"
    assert "half_plus_two" in peer.get("metadata/server")["str_data"]
    assert peer.post("metadata/model", json={"str_data": "detector"}).json()["status"]["status"] == "SUCCESS"


def check_grpc_calls(peer: Peer) -> None:
    message, stub = peer.pb.GrpsMessage, peer.stub
    for call in (stub.CheckLiveness, stub.Online, stub.CheckReadiness, stub.ServerMetadata):
        assert call(message()).status.status == peer.pb.Status.SUCCESS
    assert stub.Predict(message(model="greeter-1", str_data="grps")).str_data == "Hello, grps!"
    streamed = stub.PredictStreaming(message(model="greeter", str_data="grps"))
    assert [each.str_data for each in streamed] == ["Hello, grps!"]
    assert stub.ModelMetadata(message(str_data="detector")).status.status == peer.pb.Status.SUCCESS


def check_offline_and_online(peer: Peer) -> None:
    message, stub = peer.pb.GrpsMessage, peer.stub
    assert peer.get("health/offline")["status"]["code"] == 200
    try:
        assert peer.get("health/ready")["status"] == {
            "code": 503,
            "msg": "The server was taken offline by its operator",
            "status": "FAILURE",
        }
        assert stub.CheckReadiness(message()).status.code == 503
        assert stub.Predict(message(model="greeter", str_data="x")).status.code == 200
    finally:
        assert stub.Online(message()).status.code == 200
    assert peer.get("health/ready")["status"]["code"] == 200


def check_tensors(peer: Peer) -> None:
    told = peer.post("infer/predict?return-ndarray=true", json={"model": "half_plus_two-1", "ndarray": [1, 2]}).json()
    assert told["ndarray"] == [2.5, 3.0]
    tensor = peer.pb.GenericTensor(name="x", dtype=peer.pb.DT_FLOAT32, shape=[2], flat_float32=[1, 2])
    request = peer.pb.GrpsMessage(model="half_plus_three", gtensors=peer.pb.GenericTensorData(tensors=[tensor]))
    (answer,) = peer.stub.Predict(request).gtensors.tensors
    assert (answer.name, answer.dtype, list(answer.flat_float32)) == ("y", peer.pb.DT_FLOAT32, [3.5, 4.0])


def check_tasks(peer: Peer) -> None:
    for name, picture in PICTURES.items():
        body = {"data": picture, "headers": {"Content-Type": "application/octet-stream"}}
        over_http = peer.post(f"infer/predict?model={name}", **body).json()["str_data"]
        over_grpc = peer.stub.Predict(peer.pb.GrpsMessage(model=name, bin_data=picture)).str_data
        assert over_http == over_grpc
        assert json.loads(over_http)[0].keys() & {"label", "answer"}


def check_images_by_name(peer: Peer) -> None:
    gmap = peer.pb.GenericMapData(
        s_b={"scene": SCENE, "shape": SHAPE}, s_s={"scene.metadata": "as it came"}, s_f={"score_threshold": 0.25}
    )
    found = peer.stub.Predict(peer.pb.GrpsMessage(model="detector", gmap=gmap)).gmap.s_s
    assert set(found) == {"scene", "shape", "scene.metadata"}
    assert found["scene.metadata"] == "as it came"
    encoded = {"scene": base64.b64encode(SCENE).decode()}
    body = {"model": "detector", "gmap": {"s_b": encoded, "s_f": {"score_threshold": 0.25}}}
    told = peer.post("infer/predict", json=body).json()
    assert labels(told["gmap"]["s_s"]["scene"]) == labels(found["scene"])


def check_streams(peer: Peer) -> None:
    body = {"data": SHAPE, "headers": {"Content-Type": "application/octet-stream"}}
    whole = json.loads(peer.post("infer/predict?model=vlm", **body).json()["str_data"])[0]["answer"]
    response = peer.post("infer/predict?model=vlm&streaming=true", stream=True, **body)
    parts = [each["str_data"] for each in messages(response)]
    assert len(parts) > 1
    assert "".join(parts) == whole
    asked = peer.pb.GrpsMessage(model="vlm", bin_data=SHAPE)
    assert "".join(each.str_data for each in peer.stub.PredictStreaming(asked)) == whole


def check_errors(peer: Peer) -> None:
    refused = peer.post("infer/predict", json={"model": "nobody-1", "str_data": "x"})
    assert refused.status_code == refused.json()["status"]["code"] == 404
    answer = peer.stub.Predict(peer.pb.GrpsMessage(model="nobody-1", str_data="x"))
    assert (answer.status.code, answer.status.status) == (404, peer.pb.Status.FAILURE)
    refused = peer.post("infer/predict", data="x")
    assert refused.status_code == refused.json()["status"]["code"] == 400


if __name__ == "__main__":
    run(globals(), Peer(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
