"""Engines to be held against protocols: ours, and ours with one thing broken on the way."""

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from litestar import Litestar
from litestar.testing import TestClient

from app.assembly.models import FIXTURE_MODELS, load
from app.conformance.clause import Verdict
from app.conformance.holding import Report, held_against
from app.conformance.pictures import Picture, picture_of
from app.conformance.probe import Probe, Target
from app.conformance.protocols import PROTOCOLS
from app.settings.model import ModelSource
from tests.conformance.served import application
from tests.server_process import ROOT

Spoil = Callable[[httpx.Request, int, Any], tuple[int, Any]]
"""A request, and the status and JSON of the right answer; the status and JSON that the engine answers instead."""

_KNOWN = {each.name: each for each in PROTOCOLS}


def pictures() -> Sequence[Picture]:
    """Scenes that the fixture models were trained for."""
    folder = ROOT / "fixtures" / "images"
    return [picture_of(name, (folder / name).read_bytes()) for name in ("scene.jpg", "oriented.jpg")]


class _Between(httpx.BaseTransport):
    """Hands requests on to the right engine, and spoils its answers."""

    def __init__(self, engine: TestClient[Litestar], spoil: Spoil) -> None:
        self._engine, self._spoil = engine, spoil

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._engine.request(request.method, str(request.url), content=request.read(), headers=request.headers)
        # The answer is already unpacked here.
        unfit = ("content-length", "content-encoding")
        kept = [(name, value) for name, value in answer.headers.items() if name not in unfit]
        try:
            right = answer.json()
        except ValueError:
            return httpx.Response(answer.status_code, headers=kept, content=answer.content)
        status, wrong = self._spoil(request, answer.status_code, right)
        return httpx.Response(status, headers=kept, content=json.dumps(wrong).encode())


@contextmanager
def engine(model: str, protocol: str = "chariot-v2-kserve") -> Generator[TestClient[Litestar]]:
    """Ours over one fixture model."""
    source = ModelSource(name=model, version="1", folder=Path(FIXTURE_MODELS) / model)
    with TestClient(application([source], load, protocol)) as client:
        yield client


def held(client: httpx.Client, protocol: str = "chariot-v2-kserve", **target: Any) -> Report:
    """What is found of the engine that `client` reaches."""
    target = {"pictures": pictures(), **target}
    return held_against(_KNOWN[protocol], Probe(client, Target(url="http://testserver.local", **target)))


def held_spoilt(
    right: TestClient[Litestar], spoil: Spoil, protocol: str = "chariot-v2-kserve", **target: Any
) -> Report:
    """What is found of an engine that answers as `right` does, but for what `spoil` breaks."""
    with httpx.Client(transport=_Between(right, spoil)) as client:
        return held(client, protocol, **target)


def failed(report: Report) -> dict[str, str]:
    """The ids of the clauses that failed, with the reasons."""
    return {each.clause.id: each.reason for each in report.findings if each.verdict is Verdict.FAILED}
