"""An engine with fake models, and requests to it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from app.core.engine.engine import Engine
from app.core.engine.events import InferenceObserver, OutputAnnotator, RecordSink
from app.core.engine.request_context import RequestContext
from app.core.engine.scheduling.admission import QueueLimits
from app.core.engine.streams.text_stream import Chunk
from app.core.hooks import Parts
from app.core.wire.bytes_elements import BinaryElement
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse
from tasks.inference.tensor import BytesTensor
from tests.support.data.images import encode_image, rectangle
from tests.support.models.engines import engine_of, fake_sources
from tests.support.models.fake_models import load_fake_model


def new_context(request_id: str = "abc", **fields: Any) -> RequestContext:
    return RequestContext(protocol="test", request_id=request_id, base_id="base", response_headers={}, **fields)


@contextmanager
def running(
    *observers: InferenceObserver,
    workers: int = 2,
    queue_limits: QueueLimits | None = None,
    annotators: Sequence[OutputAnnotator] = (),
    record_sink: RecordSink | None = None,
) -> Generator[Engine]:
    sources, limits = fake_sources("detector", "failing", "oriented"), Limits(max_inputs=8)
    options: dict[str, Any] = {"limits": limits, "workers": workers, "queue_limits": queue_limits}
    engine = engine_of(sources, load_fake_model, *observers, loaded=sources[:2], **options)
    engine.attach(Parts(annotators=annotators, record_sink=record_sink))
    try:
        yield engine
    finally:
        engine.close()


def run_with_engine(
    work: Callable[[Engine], Coroutine[Any, Any, None]], *observers: InferenceObserver, **options: Any
) -> None:
    """Run a coroutine with an engine that ends after it."""
    with running(*observers, **options) as engine:
        asyncio.run(work(engine))


def request(model: str = "detector", count: int = 1, **parameters: object) -> InferenceRequest:
    element = BinaryElement(encode_image(rectangle()))
    tensor = BytesTensor(name="a", shape=(count,), elements=[element] * count, parameters=parameters)
    return InferenceRequest(id="body-id", model_name=model, inputs=(tensor,))


def stream_text(
    engine: Engine, context: RequestContext, model: str, decode: Callable[[], InferenceRequest]
) -> AsyncGenerator[Chunk]:
    return engine.stream_outputs(context, model, decode, None, lambda chunk: chunk)


def name_of(response: InferenceResponse) -> str:
    return response.model_name


def run_request(
    engine: Engine, decode: Callable[[], InferenceRequest], encode: Callable[[InferenceResponse], Any] = name_of
) -> Any:
    return asyncio.run(engine.handle(new_context(), "detector", decode, encode))
