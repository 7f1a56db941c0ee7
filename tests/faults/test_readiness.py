"""Readiness never lies: for every way in which a model cannot answer, each surface says what an inference finds."""

import asyncio
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.engine.admission import Bounds
from app.engine.description import ModelDescription
from app.engine.engine import Engine
from app.engine.events import InferenceEvent
from app.engine.registry import Registry
from app.engine.repository import Repository
from app.engine.servable import BoundServable, Servable
from app.observers.state import StateMetrics
from app.protocols import LISTENERS, protocols_beside
from app.server.asgi import create_app, create_listener_app
from app.settings.model import ModelError, ModelSource
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.limits import Limits
from tasks.exchange.tensor import Datatype, Tensor
from tasks.task import TaskType
from tasks.tensor_inference import TensorInference, Tensors, TensorsInput
from tests.support.grpc_server import Peer, message, serving_grpc
from tests.support.served import ECHOES, echo

ASKED, OTHER = "echo-fp32", "echo-int64"
BODY = {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1.5]}]}
SOURCES = [ModelSource(name=name, version="1", folder=Path("/srv/secret", name)) for name in (ASKED, OTHER)]


class RecordSink:
    """Keeps everything at once, or refuses to."""

    refusing = ""

    def keep(self, _: InferenceEvent, /) -> "Future[None] | None":
        kept: Future[None] = Future()
        if self.refusing:
            kept.set_exception(InferenceError(ErrorKind.MODEL_NOT_READY, self.refusing))
        else:
            kept.set_result(None)
        return kept


class Faltering:
    """A model that says so when it can answer nobody, as one in a process of its own does."""

    trouble = ""

    def __call__(self, inputs: Sequence[TensorsInput], /) -> Sequence[Tensors]:
        if self.trouble:
            raise InferenceError(ErrorKind.MODEL_NOT_READY, self.trouble)
        return [Tensors([Tensor(name="x", datatype=Datatype.FP32, data=each.tensors["x"])]) for each in inputs]


class Standing:
    """A server, and what may go wrong with it."""

    def __init__(self) -> None:
        self.keeper, self.model = RecordSink(), Faltering()
        self.broken = ""
        registry = Registry(SOURCES)
        self.engine = Engine(
            Repository(registry, lambda: SOURCES, self.load), (), Limits(), 2, Bounds(), keeper=self.keeper
        )

    def load(self, source: ModelSource) -> Servable:
        if source.name != ASKED:
            return echo(ECHOES[source.name])
        if self.broken:
            raise ModelError(self.broken)
        specs = ECHOES[ASKED]
        description = ModelDescription(
            task_type=TaskType.TENSOR, platform="test", layout="none", labels=(), inputs=(), outputs=(), facts=()
        )
        return BoundServable(TensorInference(specs, specs), self.model, description, {})

    def start(self) -> None:
        for each in SOURCES:
            self.engine.registry.load(each, self.load)


def _nothing(standing: Standing) -> None:
    standing.start()


def _loading(standing: Standing) -> None:
    standing.engine.registry.load(SOURCES[1], standing.load)


def _failed(standing: Standing) -> None:
    standing.broken = "/srv/secret/echo-fp32/model.onnx is cut short"
    standing.start()


def _unloaded(standing: Standing) -> None:
    standing.start()
    asyncio.run(standing.engine.repository.unload(ASKED))


def _offline(standing: Standing) -> None:
    standing.start()
    standing.engine.online = False


def _stopping(standing: Standing) -> None:
    standing.start()
    standing.engine.retire()


def _unrecorded(standing: Standing) -> None:
    standing.start()
    standing.keeper.refusing = "The inference could not be recorded: its store is full"


def _crashed(standing: Standing) -> None:
    standing.start()
    standing.model.trouble = "Its process ended (signal 11) and is being restarted"


def _reloaded_in_vain(standing: Standing) -> None:
    standing.start()
    standing.broken = "cut short"
    with pytest.raises(InferenceError):
        asyncio.run(standing.engine.repository.load(ASKED))


@contextmanager
def surfaces(standing: Standing) -> Generator[tuple["Surfaces", Peer]]:
    engine, registry = standing.engine, CollectorRegistry()
    StateMetrics(engine, registry)
    protocols = protocols_beside("chariot-v2-kserve")
    with ExitStack() as stack:
        main = stack.enter_context(TestClient(create_app(engine, protocols, registry, 2**20)))
        tfs = stack.enter_context(TestClient(create_listener_app(engine, LISTENERS[0], 2**20)))
        peer = stack.enter_context(serving_grpc(engine))
        yield Surfaces(main, tfs, peer, registry), peer


class Surfaces:
    """All that says whether requests may be sent."""

    def __init__(self, main: Any, tfs: Any, peer: Peer, registry: CollectorRegistry) -> None:
        self.main, self._tfs, self._peer, self._registry = main, tfs, peer, registry

    def server(self) -> dict[str, bool]:
        paths = ("/ready", "/v2/health/ready", "/grps/v1/health/ready")
        said = {path: self.main.get(path).status_code == 200 for path in paths}
        said |= {f"HEAD {path}": self.main.head(path).status_code == 200 for path in paths}
        check = self._peer.bytes("/grpc.health.v1.Health/Check", HealthCheckRequest().SerializeToString())
        said["grpc.health"] = HealthCheckResponse.FromString(check).status == HealthCheckResponse.SERVING
        said["ServerReady"] = self._peer.call("ServerReady", message("ServerReadyRequest")).ready
        said["charioteer_ready"] = self._registry.get_sample_value("charioteer_ready") == 1
        return said

    def model(self) -> dict[str, bool]:
        state: Any = self._tfs.get(f"/v1/models/{ASKED}").json()["model_version_status"][0]
        return {
            "v2": self.main.get(f"/v2/models/{ASKED}/ready").status_code == 200,
            "v2 version": self.main.get(f"/v2/models/{ASKED}/versions/1/ready").status_code == 200,
            "v1": self.main.get(f"/v1/models/{ASKED}").status_code == 200,
            "tensorflow-serving": state["state"] == "AVAILABLE",
            "ModelReady": self._peer.call("ModelReady", message("ModelReadyRequest", name=ASKED)).ready,
        }

    def answered(self) -> bool:
        """Whether an inference is answered, over HTTP as over gRPC."""
        http = self.main.post(f"/v2/models/{ASKED}/infer", json=BODY).status_code
        assert http in (200, 503)
        request = message("ModelInferRequest", model_name=ASKED)
        request.inputs.add(name="x", datatype="FP32", shape=[1, 1]).contents.fp32_contents.append(1.5)
        try:
            self._peer.call("ModelInfer", request)
        except grpc.RpcError as error:
            status: Any = error
            assert status.code() is grpc.StatusCode.UNAVAILABLE
            assert http == 503
            return False
        assert http == 200
        return True


@pytest.mark.parametrize(
    ("happens", "server", "model", "answered"),
    [
        (_nothing, True, True, True),
        (_loading, False, False, False),
        (_failed, False, False, False),
        # Nobody waits for a model that was unloaded on purpose.
        (_unloaded, True, False, False),
        # Load balancers are to send nothing more, and what still comes is answered.
        (_offline, False, False, True),
        (_stopping, False, False, True),
        (_unrecorded, False, False, False),
        (_crashed, False, False, False),
        # What served before goes on.
        (_reloaded_in_vain, True, True, True),
    ],
)
def test_readiness_is_what_an_inference_finds(
    happens: Callable[[Standing], None], server: bool, model: bool, answered: bool
) -> None:
    standing = Standing()
    happens(standing)
    with surfaces(standing) as (found, _):
        assert set(found.server().values()) == {server}, found.server()
        assert set(found.model().values()) == {model}, found.model()
        assert found.answered() == answered
        assert found.main.get("/health").status_code == 200, "alive all the same"
        said = [found.main.get(path).text for path in ("/ready", f"/v2/models/{ASKED}/ready", f"/v1/models/{ASKED}")]
        said.append(found.main.post(f"/v2/models/{ASKED}/infer", json=BODY).text)
        assert not any("secret" in each for each in said), "where files lie is told to nobody"
    standing.engine.close()


def test_a_model_that_recovers_is_ready_at_once() -> None:
    standing = Standing()
    standing.start()
    with surfaces(standing) as (found, _):
        standing.model.trouble = "It ended"
        assert not found.answered()
        assert not any(found.model().values())
        standing.model.trouble = ""
        assert all([*found.model().values(), *found.server().values(), found.answered()])
    standing.engine.close()
