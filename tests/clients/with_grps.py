"""Check GRPS with stubs compiled from its proto, and with requests: ``python -m tests.clients.with_grps``.

The arguments are the URL of the server, HOST:PORT of its gRPC port, and the proto. No registry has GRPS's own wheel of
stubs. The calls are those of the client test in GRPS's repository.
"""

import base64
import importlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.clients.checks import IMAGE_OF_MODEL, SCENE, SHAPE, run

grpc: Any = importlib.import_module("grpc")
protoc: Any = importlib.import_module("grpc_tools.protoc")
requests: Any = importlib.import_module("requests")


class Client:
    """A client over HTTP and gRPC."""

    def __init__(self, address: str, grpc_address: str, proto: Path) -> None:
        folder = tempfile.mkdtemp()
        arguments = [f"-I{proto.parent}", f"--python_out={folder}", f"--grpc_python_out={folder}", proto.name]
        assert protoc.main(["protoc", *arguments]) == 0
        sys.path.insert(0, folder)
        self.pb: Any = importlib.import_module("grps_pb2")
        self.stub: Any = importlib.import_module("grps_pb2_grpc").GrpsServiceStub(grpc.insecure_channel(grpc_address))
        self._root = f"{address}/grps/v1"

    def get(self, path: str) -> Any:
        """Return the message at a path, as JSON."""
        return requests.get(f"{self._root}/{path}", timeout=30).json()

    def post(self, path: str, **options: Any) -> Any:
        """Send POST, and return the response."""
        return requests.post(f"{self._root}/{path}", timeout=60, **options)


def read_messages(response: Any) -> Iterator[Any]:
    """Yield the messages of a stream of concatenated JSON documents."""
    pending = ""
    for chunk in response.iter_content(None):
        pending += chunk.decode()
        while pending:
            try:
                message, end = json.JSONDecoder().raw_decode(pending)
            except json.JSONDecodeError:
                break
            pending = pending[end:].lstrip()
            yield message
    assert not pending


def labels_of(text: str) -> list[str]:
    """Return the labels of JSON records."""
    return [record["label"] for record in json.loads(text)]


def check_http_calls(client: Client) -> None:
    for path in ("health/live", "health/online", "health/ready"):
        assert client.get(path)["status"]["status"] == "SUCCESS"
    prediction = client.post("infer/predict", json={"model": "greeter", "str_data": "hello grps."}).json()
    assert prediction["str_data"] == "Hello, hello grps.!"
    assert prediction["status"]["status"] == "SUCCESS"
    assert "half_plus_two" in client.get("metadata/server")["str_data"]
    assert client.post("metadata/model", json={"str_data": "detector"}).json()["status"]["status"] == "SUCCESS"


def check_grpc_calls(client: Client) -> None:
    message, stub = client.pb.GrpsMessage, client.stub
    for call in (stub.CheckLiveness, stub.Online, stub.CheckReadiness, stub.ServerMetadata):
        assert call(message()).status.status == client.pb.Status.SUCCESS
    assert stub.Predict(message(model="greeter-1", str_data="grps")).str_data == "Hello, grps!"
    responses = stub.PredictStreaming(message(model="greeter", str_data="grps"))
    assert [response.str_data for response in responses] == ["Hello, grps!"]
    assert stub.ModelMetadata(message(str_data="detector")).status.status == client.pb.Status.SUCCESS


def check_offline_and_online(client: Client) -> None:
    message, stub = client.pb.GrpsMessage, client.stub
    assert client.get("health/offline")["status"]["code"] == 200
    try:
        assert client.get("health/ready")["status"] == {
            "code": 503,
            "msg": "The server was taken offline by its operator",
            "status": "FAILURE",
        }
        assert stub.CheckReadiness(message()).status.code == 503
        assert stub.Predict(message(model="greeter", str_data="x")).status.code == 200
    finally:
        assert stub.Online(message()).status.code == 200
    assert client.get("health/ready")["status"]["code"] == 200


def check_tensors(client: Client) -> None:
    prediction = client.post(
        "infer/predict?return-ndarray=true", json={"model": "half_plus_two-1", "ndarray": [1, 2]}
    ).json()
    assert prediction["ndarray"] == [2.5, 3.0]
    tensor = client.pb.GenericTensor(name="x", dtype=client.pb.DT_FLOAT32, shape=[2], flat_float32=[1, 2])
    request = client.pb.GrpsMessage(model="half_plus_three", gtensors=client.pb.GenericTensorData(tensors=[tensor]))
    (output,) = client.stub.Predict(request).gtensors.tensors
    assert (output.name, output.dtype, list(output.flat_float32)) == ("y", client.pb.DT_FLOAT32, [3.5, 4.0])


def check_tasks(client: Client) -> None:
    for name, image_bytes in IMAGE_OF_MODEL.items():
        body = {"data": image_bytes, "headers": {"Content-Type": "application/octet-stream"}}
        over_http = client.post(f"infer/predict?model={name}", **body).json()["str_data"]
        over_grpc = client.stub.Predict(client.pb.GrpsMessage(model=name, bin_data=image_bytes)).str_data
        assert over_http == over_grpc
        assert json.loads(over_http)[0].keys() & {"label", "answer"}


def check_images_by_name(client: Client) -> None:
    gmap = client.pb.GenericMapData(
        s_b={"scene": SCENE, "shape": SHAPE}, s_s={"scene.metadata": "as it came"}, s_f={"score_threshold": 0.25}
    )
    over_grpc = client.stub.Predict(client.pb.GrpsMessage(model="detector", gmap=gmap)).gmap.s_s
    assert set(over_grpc) == {"scene", "shape", "scene.metadata"}
    assert over_grpc["scene.metadata"] == "as it came"
    encoded_images = {"scene": base64.b64encode(SCENE).decode()}
    body = {"model": "detector", "gmap": {"s_b": encoded_images, "s_f": {"score_threshold": 0.25}}}
    over_http = client.post("infer/predict", json=body).json()
    assert labels_of(over_http["gmap"]["s_s"]["scene"]) == labels_of(over_grpc["scene"])


def check_streams(client: Client) -> None:
    body = {"data": SHAPE, "headers": {"Content-Type": "application/octet-stream"}}
    complete_answer = json.loads(client.post("infer/predict?model=vlm", **body).json()["str_data"])[0]["answer"]
    response = client.post("infer/predict?model=vlm&streaming=true", stream=True, **body)
    chunks = [message["str_data"] for message in read_messages(response)]
    assert len(chunks) > 1
    assert "".join(chunks) == complete_answer
    request = client.pb.GrpsMessage(model="vlm", bin_data=SHAPE)
    assert "".join(message.str_data for message in client.stub.PredictStreaming(request)) == complete_answer


def check_errors(client: Client) -> None:
    rejected = client.post("infer/predict", json={"model": "missing-1", "str_data": "x"})
    assert rejected.status_code == rejected.json()["status"]["code"] == 404
    response = client.stub.Predict(client.pb.GrpsMessage(model="missing-1", str_data="x"))
    assert (response.status.code, response.status.status) == (404, client.pb.Status.FAILURE)
    rejected = client.post("infer/predict", data="x")
    assert rejected.status_code == rejected.json()["status"]["code"] == 400


if __name__ == "__main__":
    run(globals(), Client(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
