"""Triton's statistics of inferences, and its repository and statistics extensions over gRPC."""

import threading
from typing import Any

import grpc
import msgspec
import pytest

from app.core.engine.request_context import RequestContext
from app.plugins.triton.statistics import ModelStatistics, Statistics
from tasks.inference.error import ErrorKind
from tests.support.servers.grpc_server import build_engine, image_request, message, run_grpc_server

EVENT = RequestContext(
    protocol="kserve-v2", request_id="1", model_name="m", model_version="1", batch_size=4, queue=10, total=100,
    decode_ns=20, model_ns=30, postprocess_ns=5,
)  # fmt: skip


@pytest.fixture
def statistics() -> Statistics:
    return Statistics()


@pytest.mark.parametrize(
    "changes", [{"explanation": True}, {"model_version": "", "outcome": ErrorKind.MODEL_NOT_FOUND}], ids=str
)
def test_explanation_and_unknown_model_are_not_counted(statistics: Statistics, changes: dict[str, Any]) -> None:
    event = msgspec.structs.replace(EVENT, **changes)
    statistics.observe(event)
    assert statistics.for_model("m", event.model_version) == ModelStatistics("m", event.model_version)


def test_concurrent_observations_are_all_counted(statistics: Statistics) -> None:
    def observe() -> None:
        for _ in range(500):
            statistics.observe(EVENT)

    threads = [threading.Thread(target=observe) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = statistics.for_model("m", "1")
    assert (counts.execution_count, counts.inference_count, counts.inference_stats.success.ns) == (2000, 8000, 200_000)


Code = grpc.StatusCode


def test_server_metadata_lists_the_extensions() -> None:
    with run_grpc_server(build_engine(())) as peer:
        extensions = ["statistics", "model_repository", "model_configuration"]
        assert list(peer.call("ServerMetadata").extensions)[-3:] == extensions


def test_statistics_are_counted_per_model() -> None:
    with run_grpc_server(build_engine(("detector",))) as peer:
        peer.call("ModelInfer", image_request("detector", count=3))
        (statistics,) = peer.call("ModelStatistics", message("ModelStatisticsRequest", name="detector")).model_stats
        assert (statistics.name, statistics.version) == ("detector", "1")
        assert (statistics.inference_count, statistics.execution_count) == (3, 1)
        assert [(batch.batch_size, batch.compute_infer.count) for batch in statistics.batch_stats] == [(3, 1)]
        for fields in ({"name": "missing"}, {"name": "detector", "version": "9"}):
            assert peer.call_error("ModelStatistics", message("ModelStatisticsRequest", **fields))[0] is Code.NOT_FOUND


def test_repository_lists_unloads_and_loads_models() -> None:
    with run_grpc_server(build_engine(("echo-fp32", "detector"))) as peer:
        states = {model.name: (model.version, model.state) for model in peer.call("RepositoryIndex").models}
        assert states == {"detector": ("1", "READY"), "echo-fp32": ("1", "READY")}
        unload_request = message("RepositoryModelUnloadRequest", model_name="detector")
        peer.call("RepositoryModelUnload", unload_request)
        assert peer.call_error("ModelInfer", image_request("detector"))[0] is Code.UNAVAILABLE
        assert peer.call("ServerReady").ready
        ready = peer.call("RepositoryIndex", message("RepositoryIndexRequest", ready=True))
        assert [model.name for model in ready.models] == ["echo-fp32"]
        peer.call("RepositoryModelLoad", message("RepositoryModelLoadRequest", model_name="detector"))
        assert peer.call("ModelInfer", image_request("detector")).outputs
        for method in ("RepositoryModelLoad", "RepositoryModelUnload"):
            assert peer.call_error(method, message(f"{method}Request", model_name="missing"))[0] is Code.NOT_FOUND
            other_repository = message(f"{method}Request", model_name="detector", repository_name="other")
            assert peer.call_error(method, other_repository)[0] is Code.UNIMPLEMENTED
        configured = {"config": {"string_param": "{}"}}
        load_with_config = message("RepositoryModelLoadRequest", model_name="detector", parameters=configured)
        assert peer.call_error("RepositoryModelLoad", load_with_config)[0] is Code.UNIMPLEMENTED
