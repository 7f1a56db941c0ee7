"""Engines to check against protocols: ours, and ours with one deliberate fault."""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import sha256
from typing import Any

import cv2
import httpx
import numpy as np
import pytest
from google.protobuf.message_factory import GetMessageClass
from litestar import Litestar
from litestar.testing import TestClient
from numpy.typing import NDArray

from app.core.assembly.models import load as load_fixture
from app.core.engine.models.servable import Servable
from app.core.proto import INFERENCE
from app.core.settings.model import ModelSource
from app.core.settings.server import DEMO_MODELS
from app.plugins.conformance.check import CheckVerdict, Protocol
from app.plugins.conformance.probe import GrpcChannel, Probe, Target
from app.plugins.conformance.protocols import PROTOCOLS
from app.plugins.conformance.runner import CheckRunner, ConformanceReport
from app.plugins.conformance.sample_images import SampleImage, load_image
from tasks.object_detection import DetectionInput
from tasks.oriented_object_detection import OrientedDetections, OrientedObjectDetection
from tasks.task import TaskType
from tasks.vision.image import Image
from tests.support.models.fake_models import bright_mask, detect_oriented, stand_in_metadata
from tests.support.servers.apps import PYTHON_MODELS, app_with_sources, model_source
from tests.support.servers.grpc_server import build_engine_from_sources, run_grpc_server
from tests.support.servers.server_process import ROOT

PROTOCOLS_BY_NAME = {protocol.name: protocol for protocol in PROTOCOLS}
BARS = "bars"
"""A model that detects oriented bars exactly."""

CHARIOT_PROTOCOLS = ("chariot-v2-kserve", "chariot-v2")

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class WithHeaders:
    """A body, as JSON or bytes, with headers that replace the original ones; None removes a header."""

    body: Any
    headers: Mapping[str, str | None]


@dataclass(slots=True)
class Reply:
    """The reply to a gRPC call: its status, its error text and its messages."""

    status: int
    text: str
    messages: list[Any]

    def replace(self, status: int, *messages: Any, text: str = "no") -> None:
        self.status, self.text, self.messages[:] = status, text if status else "", messages


Respond = Callable[[httpx.Request], httpx.Response]

AnswerFault = Callable[[httpx.Request, int, Any], tuple[int, Any]]
"""Take a request and the status and JSON of the correct answer; return what to answer instead, as JSON or bytes."""

RequestFault = Callable[[httpx.Request], httpx.Request]
"""Take a request; return the request that the broken engine handles instead."""

CallFault = Callable[[str, Any, Reply], None]
"""Take a method, its request and the correct reply, and change the reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A deliberate fault: what it changes, and the ids of the checks that must fail, first the one that it is for.

    Args:
        model: the model that shows it, a fixture or `BARS`.
        raw: whether `change_answer` also receives answers that are not JSON, as bytes.
    """

    protocol: str
    model: str
    checks: str = ""
    change_answer: AnswerFault = lambda _, status, answer: (status, answer)
    change_request: RequestFault = lambda request: request
    change_call: CallFault = lambda _method, _request, _reply: None
    raw: bool = False


AnswerFaults = Mapping[str, tuple[str, AnswerFault] | tuple[str, AnswerFault, str]]
"""For each fault the checks that must fail, the change of HTTP answers, and its model if another than the usual one."""

CallFaults = Mapping[str, tuple[str, CallFault] | tuple[str, CallFault, str]]
"""As `AnswerFaults`, for gRPC replies."""


RequestFaults = Mapping[str, tuple[str, RequestFault]]
"""As `AnswerFaults`, for HTTP requests."""


def faults_of(
    protocol: str, model: str, table: Mapping[str, Any], changes: str = "change_answer", *, raw: bool = False
) -> dict[str, Fault]:
    """Return the faults of a table; `model` is the usual model, and `changes` the field of `Fault` with the change."""
    return {
        name: Fault(protocol=protocol, model=[model, *other][-1], checks=checks, raw=raw, **{changes: change})
        for name, (checks, change, *other) in table.items()
    }


@cache
def scenes() -> Sequence[SampleImage]:
    """Return images of the kinds that the fixture models were trained on."""
    folder = ROOT / "fixtures" / "images"
    return [load_image(name, (folder / name).read_bytes()) for name in ("scene.jpg", "oriented.jpg")]


def sources(model: str) -> Sequence[ModelSource]:
    """Return the source of a model: a fixture, a Python model of the tests, or `BARS`."""
    if (PYTHON_MODELS / model).is_dir():
        return [model_source(model)]
    return [ModelSource(name=model, version="1", folder=DEMO_MODELS / model)]


def load(source: ModelSource) -> Servable:
    if source.name != BARS:
        return load_fixture(source)
    return Servable(OrientedObjectDetection(), detect_bars, stand_in_metadata(TaskType.ORIENTED_OBJECT_DETECTION), {})


def detect_bars(inputs: Sequence[DetectionInput]) -> Sequence[OrientedDetections]:
    """Detect the bright part of a dark image exactly, as no trained model does, and nothing in a plain image."""
    return [
        detect_oriented([item])[0] if bright_mask(item.image).any() else _no_detections(item.image) for item in inputs
    ]


def _no_detections(image: Image) -> OrientedDetections:
    no_scores, no_boxes = np.zeros(0, np.float32), np.zeros((0, 5), np.float32)
    return OrientedDetections(labels=[], scores=no_scores, boxes=no_boxes, width=image.width, height=image.height)


@contextmanager
def engine(model: str, protocol: str = "chariot-v2-kserve") -> Generator[TestClient[Litestar]]:
    """Serve one model with our engine, over HTTP."""
    with TestClient(app_with_sources(sources(model), load, protocol)) as client:
        yield client


@contextmanager
def grpc_engine(model: str) -> Generator[GrpcChannel]:
    """Serve one model with our engine, and yield a gRPC channel to it."""
    with run_grpc_server(build_engine_from_sources(sources(model), load)) as peer:
        yield GrpcChannel(peer.channel, (), 30)


@dataclass(slots=True)
class Engines:
    """Our engines, started on first use, with a cache of their answers, because most faults change the same answers."""

    stack: ExitStack
    _running: dict[Key, Any] = field(default_factory=dict[Key, Any])
    _answers: dict[Key, Any] = field(default_factory=dict[Key, Any])

    def http(self, model: str, protocol: str) -> TestClient[Litestar]:
        return self._start((model, protocol), engine(model, protocol))

    def grpc(self, model: str) -> GrpcChannel:
        return self._start((model, "grpc"), grpc_engine(model))

    def _start(self, key: Key, stopped: AbstractContextManager[Any]) -> Any:
        if key not in self._running:
            self._running[key] = self.stack.enter_context(stopped)
        return self._running[key]

    def cached(self, key: Key, request: Callable[[], Any], seen: set[Key]) -> Any:
        """Return the cached answer; send again if it was `seen` in the same run."""
        repeated = key in seen
        seen.add(key)
        if repeated:
            return request()
        if key not in self._answers:
            self._answers[key] = request()
        return self._answers[key]


@contextmanager
def open_engines() -> Generator[Engines]:
    """Yield engines; until they close, encode equal images once, because every run of the checks sends the same."""
    encode: Callable[..., Any] = cv2.imencode
    encoded: dict[Key, Any] = {}

    def encode_once(extension: str, pixels: NDArray[Any], *options: Sequence[int]) -> Any:
        key = (extension, pixels.shape, pixels.dtype, sha256(pixels.tobytes()).digest(), str(options))
        if key not in encoded:
            encoded[key] = encode(extension, pixels, *options)
        return encoded[key]

    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cv2, "imencode", encode_once)
        yield Engines(stack)


class FaultyTransport(httpx.BaseTransport):
    """Forward requests to our engine, and apply a fault to the requests or answers."""

    def __init__(self, engines: Engines, fault: Fault) -> None:
        self._engines, self._fault = engines, fault
        self._seen = set[Key]()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        response = self._answer(request)
        # The content is already decompressed.
        dropped = ("content-length", "content-encoding")
        headers = {name: value for name, value in response.headers.items() if name.lower() not in dropped}
        try:
            correct = response.json()
        except ValueError:
            if not self._fault.raw:
                return httpx.Response(response.status_code, headers=headers, content=response.content)
            correct = response.content
        status, wrong = self._fault.change_answer(request, response.status_code, correct)
        if isinstance(wrong, WithHeaders):
            headers = {name: value for name, value in headers.items() if name not in wrong.headers}
            headers |= {name: value for name, value in wrong.headers.items() if value is not None}
            wrong = wrong.body
        content = wrong if isinstance(wrong, bytes) else json.dumps(wrong).encode()
        return httpx.Response(status, headers=headers, content=content)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        forwarded = self._fault.change_request(request)
        key = (self._fault.protocol, self._fault.model, forwarded.method, str(forwarded.url), forwarded.content,
               tuple(sorted(forwarded.headers.items())))  # fmt: skip
        client = self._engines.http(self._fault.model, self._fault.protocol)
        send = partial(
            client.request, forwarded.method, str(forwarded.url), content=forwarded.content, headers=forwarded.headers
        )
        return self._engines.cached(key, send, self._seen)


class FaultyCaller(GrpcChannel):
    """Forward calls to our engine, and apply a fault to the replies."""

    def __init__(self, engines: Engines, fault: Fault) -> None:
        self._engines, self._fault = engines, fault
        self._seen = set[Key]()

    def wait_connected(self) -> None:
        self._engines.grpc(self._fault.model).wait_connected()

    def call(self, path: str, message: bytes) -> tuple[int, str, Sequence[bytes]]:
        key = (self._fault.model, path, message)
        channel = self._engines.grpc(self._fault.model)
        send = partial(channel.call, path, message)
        status, text, answers = self._engines.cached(key, send, self._seen)
        method = path.rpartition("/")[2]
        descriptor = INFERENCE.methods_by_name[method]
        request_class, answer_class = map(GetMessageClass, (descriptor.input_type, descriptor.output_type))
        reply = Reply(status, text, [answer_class.FromString(answer) for answer in answers])
        self._fault.change_call(method, request_class.FromString(message), reply)
        return reply.status, reply.text, [answer.SerializeToString() for answer in reply.messages]


class ScriptedCaller(GrpcChannel):
    """Answer every call with what `reply` returns for its path: a status, an error text and messages."""

    def __init__(self, reply: Callable[[str], tuple[int, str, list[bytes]]]) -> None:
        self._reply = reply

    def wait_connected(self) -> None:
        pass

    def call(self, path: str, message: bytes) -> tuple[int, str, list[bytes]]:
        return self._reply(path)


def check_engine(
    protocol: Protocol | str,
    reply: Respond | httpx.BaseTransport | None = None,
    *,
    caller: GrpcChannel | None = None,
    url: str = "http://engine.local",
    model: str | None = "m",
    max_requests: int = 400,
    **target: Any,
) -> ConformanceReport:
    """Run every check of a protocol against the engine that `reply` answers for over HTTP, or `caller` over gRPC."""
    protocol = PROTOCOLS_BY_NAME[protocol] if isinstance(protocol, str) else protocol
    transport = reply if isinstance(reply, httpx.BaseTransport) else httpx.MockTransport(reply or _no_reply)
    with httpx.Client(transport=transport, headers={"authorization": "Bearer secret"}, timeout=60) as client:
        engine = Target(url=url, model=model, **target)
        probe = Probe(client, engine, max_requests, caller if protocol.rpc else None)
        runner = CheckRunner(protocol, probe)
        runner.check_reachable()
        return runner.report()


def _no_reply(_: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("rejected")


def check_with_fault(engines: Engines, fault: Fault, **target: Any) -> ConformanceReport:
    is_chariot = fault.protocol in CHARIOT_PROTOCOLS
    target = {"model": None if is_chariot else fault.model, "images": scenes() if is_chariot else (), **target}
    caller = FaultyCaller(engines, fault)
    if not PROTOCOLS_BY_NAME[fault.protocol].rpc:
        # The time in which a large model is loaded is not the timeout of a request.
        engines.http(fault.model, fault.protocol)
    return check_engine(fault.protocol, FaultyTransport(engines, fault), caller=caller, **target)


def failed_checks(report: ConformanceReport) -> dict[str, str]:
    """Return the ids of the failed checks, with the reasons."""
    return {finding.check.id: finding.reason for finding in report.findings if finding.verdict is CheckVerdict.FAILED}
