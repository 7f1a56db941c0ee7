"""Check stubs compiled from the protos of TensorFlow Serving: ``python -m tests.clients.with_tensorflow_stubs``.

The argument is the address of the gRPC port.
"""

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.clients.checks import SHAPE, raised_error, run

grpc: Any = importlib.import_module("grpc")
protoc: Any = importlib.import_module("grpc_tools.protoc")

_ROOT = Path(__file__).parents[2]
_FOLDER = "app/plugins/tensorflow_serving/proto"
_FILES = (f"{_FOLDER}/tensorflow.proto", f"{_FOLDER}/tensorflow_serving.proto")
_INCLUDED = Path(str(importlib.import_module("grpc_tools").__file__)).parent / "_proto"


class Client:
    """The messages and both services."""

    def __init__(self, address: str) -> None:
        folder = tempfile.mkdtemp()
        options = [f"-I{_ROOT}", f"-I{_INCLUDED}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
        assert protoc.main(["protoc", *options, *_FILES]) == 0
        sys.path.insert(0, folder)
        package = _FOLDER.replace("/", ".")
        self.pb: Any = importlib.import_module(f"{package}.tensorflow_serving_pb2")
        services: Any = importlib.import_module(f"{package}.tensorflow_serving_pb2_grpc")
        channel = grpc.insecure_channel(address)
        self.prediction = services.PredictionServiceStub(channel)
        self.models = services.ModelServiceStub(channel)

    def spec(self, name: str) -> Any:
        """Return a `ModelSpec`."""
        return self.pb.ModelSpec(name=name)

    def examples(self, **feature: Any) -> Any:
        """Return an `Input` of one example."""
        return self.pb.Input(example_list={"examples": [{"features": {"feature": feature}}]})


def check_regression_and_classification(client: Client) -> None:
    spec, inputs = client.spec("half_plus_two"), client.examples(x={"float_list": {"value": [80]}})
    regression = client.prediction.Regress(client.pb.RegressionRequest(model_spec=spec, input=inputs), timeout=60)
    assert regression.result.regressions[0].value == 42
    image = client.examples(image={"bytes_list": {"value": [SHAPE]}})
    request = client.pb.ClassificationRequest(model_spec=client.spec("classifier"), input=image)
    (row,) = client.prediction.Classify(request, timeout=60).result.classifications
    assert row.classes[0].label == "blue star"


def check_metadata(client: Client) -> None:
    request = client.pb.GetModelMetadataRequest(model_spec=client.spec("detector"), metadata_field=["signature_def"])
    response = client.prediction.GetModelMetadata(request, timeout=60)
    definitions = client.pb.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(definitions)
    assert set(definitions.signature_def["serving_default"].inputs) == {"image"}


def check_status_and_rejected_reload(client: Client) -> None:
    request = client.pb.GetModelStatusRequest(model_spec=client.spec("vlm"))
    (status,) = client.models.GetModelStatus(request, timeout=60).model_version_status
    assert status.state == client.pb.ModelVersionStatus.AVAILABLE
    error: Any = raised_error(
        grpc.RpcError, client.models.HandleReloadConfigRequest, client.pb.ReloadConfigRequest(), timeout=60
    )
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


if __name__ == "__main__":
    run(globals(), Client(sys.argv[1]))
