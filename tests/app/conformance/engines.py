"""Engines to be held against protocols: ours, and ours with one thing broken on the way."""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from litestar import Litestar
from litestar.testing import TestClient

from app.assembly.models import FIXTURE_MODELS
from app.assembly.models import load as load_fixture
from app.conformance.calls import Channel
from app.conformance.clause import Verdict
from app.conformance.holding import Report, held_against
from app.conformance.messages import GRPS, OPEN_INFERENCE, answer_class, request_class
from app.conformance.pictures import Picture, picture_of
from app.conformance.probe import Caller, Probe, Target
from app.conformance.protocols import PROTOCOLS
from app.engine.description import ModelDescription
from app.engine.servable import BoundServable, Servable
from app.settings.model import ModelSource
from tasks.object_detection import DetectionInput
from tasks.oriented_object_detection import OrientedDetections, OrientedObjectDetection
from tasks.task import TaskType
from tests.support.grpc_server import over, serving_grpc
from tests.support.served import application
from tests.support.server_process import ROOT
from tests.support.stand_ins import bright, detect_oriented

KNOWN = {each.name: each for each in PROTOCOLS}
BARS = "bars"
"""A model that finds turned bars exactly."""

CHARIOT = ("chariot-v2-kserve", "chariot-v2")

Key = tuple[object, ...]

_CHANGEABLE = ("/health/", "/Online", "/Offline", "/CheckReadiness")
"""What is asked there depends on what was asked before."""


@dataclass(frozen=True, slots=True)
class Headed:
    """A body, as JSON or as bytes, with headers that go before the right ones; none takes one away."""

    body: Any
    headers: Mapping[str, str | None]


@dataclass(slots=True)
class Reply:
    """The answer to a call: its status, the text beside it, its messages."""

    status: int
    text: str
    messages: list[Any]

    def become(self, status: int, *messages: Any, text: str = "no") -> None:
        """Be another answer."""
        self.status, self.text, self.messages[:] = status, text if status else "", messages


Spoil = Callable[[httpx.Request, int, Any], tuple[int, Any]]
"""A request, and the status and JSON of the right answer; the status and JSON, or bytes, that are answered instead."""

Rewrite = Callable[[httpx.Request], httpx.Request]
"""The request that a broken engine takes another one for."""

SpoilCall = Callable[[str, Any, Reply], None]
"""A method, its request, and the right answer, to be changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that is broken.

    Args:
        protocol: over which it shows.
        model: a fixture, or `BARS`, that it is broken with.
        clause: that has to name it.
        spoil: how, in answers over HTTP.
        rewrite: how, in requests over HTTP.
        call: how, over gRPC.
        also: clauses that rightly name it, too.
        raw: whether `spoil` wants answers that are not JSON, as bytes.
    """

    protocol: str
    model: str
    clause: str
    spoil: Spoil = lambda _, status, answer: (status, answer)
    rewrite: Rewrite = lambda request: request
    call: SpoilCall = lambda _method, _request, _reply: None
    also: Sequence[str] = ()
    raw: bool = False


def pictures() -> Sequence[Picture]:
    """Scenes that the fixture models were trained for."""
    folder = ROOT / "fixtures" / "images"
    return [picture_of(name, (folder / name).read_bytes()) for name in ("scene.jpg", "oriented.jpg")]


def sources(model: str) -> Sequence[ModelSource]:
    """Where a model comes from: a fixture, or `BARS`."""
    return [ModelSource(name=model, version="1", folder=FIXTURE_MODELS / model)]


def load(given: ModelSource) -> Servable:
    """A fixture, or `BARS`."""
    if given.name != BARS:
        return load_fixture(given)
    description = ModelDescription(
        task_type=TaskType.ORIENTED_OBJECT_DETECTION, platform="stand-in", layout="none", labels=(), inputs=(),
        outputs=(), facts=(),
    )  # fmt: skip
    return BoundServable(OrientedObjectDetection(), find_bars, description, {})


def find_bars(inputs: Sequence[DetectionInput]) -> Sequence[OrientedDetections]:
    """The bright part of a dark picture, exactly, which no trained model does; nothing in a plain one."""
    return [detect_oriented([each])[0] if bright(each.image).any() else _nothing(each) for each in inputs]


def _nothing(given: DetectionInput) -> OrientedDetections:
    none, no_boxes = np.zeros(0, np.float32), np.zeros((0, 5), np.float32)
    size = {"width": given.image.width, "height": given.image.height}
    return OrientedDetections(labels=[], scores=none, boxes=no_boxes, **size)


@contextmanager
def engine(model: str, protocol: str = "chariot-v2-kserve") -> Generator[TestClient[Litestar]]:
    """Ours over one model."""
    with TestClient(application(sources(model), load, protocol)) as client:
        yield client


@contextmanager
def grpc_engine(model: str) -> Generator[Channel]:
    """A channel to ours over one model."""
    with serving_grpc(over(sources(model), load)) as peer:
        yield Channel(peer.channel, (), 30)


@dataclass(slots=True)
class Engines:
    """Ours, started when they are first asked for, whose answers are kept: most faults are planted in the same ones."""

    stack: ExitStack
    _running: dict[Key, Any] = field(default_factory=dict[Key, Any])
    _known: dict[Key, Any] = field(default_factory=dict[Key, Any])

    def http(self, model: str, protocol: str) -> TestClient[Litestar]:
        if (model, protocol) not in self._running:
            self._running[model, protocol] = self.stack.enter_context(engine(model, protocol))
        return self._running[model, protocol]

    def grpc(self, model: str) -> Channel:
        if (model, "grpc") not in self._running:
            self._running[model, "grpc"] = self.stack.enter_context(grpc_engine(model))
        return self._running[model, "grpc"]

    def kept(self, key: Key, ask: Callable[[], Any], *, again: bool) -> Any:
        """What `ask` brought the first time, or brings now where that may be another answer: `again` in one run."""
        if again or any(word in str(part) for part in key[:4] for word in _CHANGEABLE):
            return ask()
        if key not in self._known:
            self._known[key] = ask()
        return self._known[key]


class Between(httpx.BaseTransport):
    """Hands requests on to the right engine, and spoils them or their answers."""

    def __init__(self, engines: Engines, fault: Fault) -> None:
        self._engines, self._fault = engines, fault
        self._seen = set[Key]()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        answer = self._answer(request)
        # The answer is already unpacked here.
        unfit = ("content-length", "content-encoding")
        headers = {name: value for name, value in answer.headers.items() if name.lower() not in unfit}
        try:
            right = answer.json()
        except ValueError:
            if not self._fault.raw:
                return httpx.Response(answer.status_code, headers=headers, content=answer.content)
            right = answer.content
        status, wrong = self._fault.spoil(request, answer.status_code, right)
        if isinstance(wrong, Headed):
            headers = {name: value for name, value in headers.items() if name not in wrong.headers}
            headers |= {name: value for name, value in wrong.headers.items() if value is not None}
            wrong = wrong.body
        content = wrong if isinstance(wrong, bytes) else json.dumps(wrong).encode()
        return httpx.Response(status, headers=headers, content=content)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        taken = self._fault.rewrite(request)
        key = (self._fault.protocol, self._fault.model, taken.method, str(taken.url), taken.content,
               tuple(sorted(taken.headers.items())))  # fmt: skip
        again = key in self._seen
        self._seen.add(key)
        right = self._engines.http(self._fault.model, self._fault.protocol)

        def ask() -> httpx.Response:
            return right.request(taken.method, str(taken.url), content=taken.content, headers=taken.headers)

        return self._engines.kept(key, ask, again=again)


class SpoiltCaller:
    """Hands calls on to the right engine, and spoils their answers."""

    def __init__(self, engines: Engines, fault: Fault) -> None:
        self._engines, self._fault = engines, fault
        self._seen = set[Key]()

    def reach(self) -> None:
        self._engines.grpc(self._fault.model).reach()

    def call(self, path: str, message: bytes, *, streamed: bool) -> tuple[int, str, Sequence[bytes]]:
        key = (self._fault.model, path, message)
        again = key in self._seen
        self._seen.add(key)
        right = self._engines.grpc(self._fault.model)
        status, text, answers = self._engines.kept(
            key, lambda: right.call(path, message, streamed=streamed), again=again
        )
        name, method = path.lstrip("/").split("/")
        service = next(each for each in (OPEN_INFERENCE, GRPS) if each.full_name == name)
        reply = Reply(status, text, [answer_class(service, method).FromString(each) for each in answers])
        self._fault.call(method, request_class(service, method).FromString(message), reply)
        return reply.status, reply.text, [each.SerializeToString() for each in reply.messages]


def held(
    client: httpx.Client, protocol: str = "chariot-v2-kserve", *, caller: Caller | None = None, **target: Any
) -> Report:
    """What is found of the engine that `client` or `caller` reaches."""
    target = {"pictures": pictures() if protocol in CHARIOT else (), **target}
    probe = Probe(client, Target(url="http://testserver.local", **target), caller=caller)
    return held_against(KNOWN[protocol], probe)


def held_spoilt(engines: Engines, fault: Fault) -> Report:
    """What is found of an engine that answers as ours does, but for `fault`."""
    model = None if fault.protocol in CHARIOT else fault.model
    caller = SpoiltCaller(engines, fault) if KNOWN[fault.protocol].rpc else None
    with httpx.Client(transport=Between(engines, fault), timeout=60) as client:
        return held(client, fault.protocol, caller=caller, model=model)


def failed(report: Report) -> dict[str, str]:
    """The ids of the clauses that failed, with the reasons."""
    return {each.clause.id: each.reason for each in report.findings if each.verdict is Verdict.FAILED}
