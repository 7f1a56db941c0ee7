"""Test Triton's model configuration, over HTTP and gRPC."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from litestar import Litestar
from litestar.testing import TestClient

from app.core.engine.models.registry import ModelState, Registration
from app.core.runtimes.runtime import ONNXRUNTIME
from app.core.settings.model import BatchingSettings, ModelSettings, ModelSource
from app.plugins.triton.extensions import UNSUPPORTED, model_config
from tasks.task import TaskType
from tests.support.servers.apps import app_with_models, load_test_model, model_source
from tests.support.servers.grpc_server import GrpcTestClient, build_engine_from_sources, message, run_grpc_server

FIXTURES = Path(__file__).parents[3] / "fixtures"
MODELS = ("half_plus_two", "detector", "continuer", "echo-bytes")


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient[Litestar]]:
    with TestClient(app_with_models(MODELS)) as client:
        yield client


@pytest.fixture(scope="module")
def peer() -> Iterator[GrpcTestClient]:
    engine = build_engine_from_sources([model_source(name) for name in MODELS], load_test_model)
    with run_grpc_server(engine) as peer:
        yield peer


@pytest.mark.parametrize("name", MODELS)
def test_config_has_the_tensors_of_the_metadata(client: TestClient[Litestar], name: str) -> None:
    config = client.get(f"/v2/models/{name}/versions/1/config").json()
    metadata = client.get(f"/v2/models/{name}").json()
    assert (config["name"], config["max_batch_size"]) == (name, 0)
    for key, plural in (("input", "inputs"), ("output", "outputs")):
        assert [
            (tensor["name"], tensor["dims"], tensor["data_type"].removeprefix("TYPE_").replace("STRING", "BYTES"))
            for tensor in config[key]
        ] == [(tensor["name"], tensor["shape"], tensor["datatype"]) for tensor in metadata[plural]]


@pytest.mark.parametrize("name", MODELS)
def test_both_transports_return_the_same_config(client: TestClient[Litestar], peer: GrpcTestClient, name: str) -> None:
    response = peer.call("ModelConfig", message("ModelConfigRequest", name=name, version="1"))
    expected: Any = client.get(f"/v2/models/{name}/config").json()
    received = MessageToDict(response.config, preserving_proto_field_name=True)
    for tensors, others in ((received["input"], expected["input"]), (received["output"], expected["output"])):
        # Protobuf's JSON has 64-bit integers as texts.
        dims = [(tensor["name"], [int(side) for side in tensor.get("dims", ())]) for tensor in tensors]
        assert dims == [(tensor["name"], tensor["dims"]) for tensor in others]
    for member in ("parameters", "version_policy", "backend"):
        assert received[member] == expected[member]


def test_unknown_model_has_no_config(peer: GrpcTestClient) -> None:
    status, _ = peer.call_error("ModelConfig", message("ModelConfigRequest", name="missing"))
    assert status is grpc.StatusCode.NOT_FOUND


def detector_config(batching: BatchingSettings | None = None) -> Any:
    """Return the configuration of the fixture detector as a model without a task."""
    settings = ModelSettings(task_type=TaskType.TENSOR, batching=batching or BatchingSettings())
    source = ModelSource(name="yolo", version="1", folder=FIXTURES / "models" / "detector", settings=settings)
    servable = ONNXRUNTIME.load(source)
    return model_config(Registration(source=source, state=ModelState.READY, servable=servable))


def test_metadata_of_the_file_is_a_python_literal() -> None:
    config = detector_config()
    # What ultralytics/utils/triton.py reads.
    metadata = ast.literal_eval(config.get("parameters", {}).get("metadata", {}).get("string_value", "None"))
    assert metadata["task"] == "detect"
    assert set(ast.literal_eval(metadata["names"])) == set(range(len(ast.literal_eval(metadata["names"]))))
    assert {tensor["data_type"] for tensor in config["input"]} <= {"TYPE_FP32", "TYPE_FP16", "TYPE_UINT8"}
    assert [tensor["name"] for tensor in config["output"]]
    assert (config["platform"], config["backend"]) == ("onnxruntime_onnx", "onnxruntime")


def test_batched_tensors_leave_out_the_first_dimension() -> None:
    config, batched = detector_config(), detector_config(BatchingSettings(max_size=8, max_delay_ms=3))
    assert (config["max_batch_size"], batched["max_batch_size"]) == (0, 8)
    assert "dynamic_batching" not in config
    assert batched["dynamic_batching"] == {"preferred_batch_size": [8], "max_queue_delay_microseconds": 3000}
    assert [-1, *batched["input"][0]["dims"]] == config["input"][0]["dims"]


@pytest.mark.parametrize("name", [name for _, names in UNSUPPORTED.values() for name in names])
def test_other_calls_are_rejected_with_a_reason(peer: GrpcTestClient, name: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        peer.call_bytes(f"/inference.GRPCInferenceService/{name}", b"\x0a\x01a")
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert error.details().startswith("This server does not support Triton's ")
