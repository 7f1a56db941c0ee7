"""Engines with low limits, and one that rejects every request."""

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.core.engine.scheduling.admission import QueueLimits
from app.core.hooks import Parts
from app.core.observers.metrics import Metrics
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tests.support.models.scripted_model import EventRecorder
from tests.support.servers.grpc_server import build_engine

MAX_BYTES = 60_000
LIMITS = Limits(
    max_request_bytes=MAX_BYTES, max_pixels=3000, max_request_pixels=5000, max_image_side=100, max_inputs=4,
    max_elements=600, max_values=700, max_entries=30, max_json_depth=12, max_name_length=40, max_prompts=3,
    max_text_length=50, max_new_tokens=20,
)  # fmt: skip
MODELS = ("detector", "teller", "continuer", "echo-fp32", "echo-bytes")


def engine_with_low_limits() -> Engine:
    return build_engine(MODELS, limits=LIMITS)


@contextmanager
def full_engine(*names: str, metrics: CollectorRegistry | None = None) -> Generator[tuple[Engine, EventRecorder]]:
    """Yield an engine of stand-ins whose only worker is busy and whose queue has no slots."""
    observer, gate, started = EventRecorder(), threading.Event(), threading.Event()
    engine = build_engine(names, observers=[observer], queue_limits=QueueLimits(max_waiting=0), workers=1)
    engine.attach(Parts(observers=(Metrics(metrics or CollectorRegistry(), engine.registry.owner),)))

    def block_worker() -> Any:
        started.set()
        gate.wait(60)
        raise InferenceError(ErrorKind.CANCELLED, "over")

    async def run() -> None:
        info = RequestContext(protocol="test", request_id="1", response_headers={})
        with pytest.raises(InferenceError):
            await engine.handle(info, names[0], block_worker, lambda response: response)

    holder = threading.Thread(target=lambda: asyncio.run(run()))
    holder.start()
    try:
        assert started.wait(60)
        yield engine, observer
    finally:
        gate.set()
        holder.join(30)
        engine.close()
