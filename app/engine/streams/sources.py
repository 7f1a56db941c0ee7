"""The sources of a streamed answer: chunks of text, or results of single samples."""

from collections.abc import Generator

from app.engine.inference_result import InferenceResult, SampleResult
from app.engine.models.registry import Registration
from app.engine.request_context import RequestContext
from app.engine.streams.text_stream import Chunk
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest


def text_chunks(
    context: RequestContext, request: InferenceRequest, registration: Registration, limits: Limits
) -> Generator[Chunk]:
    """Yield the chunks of a model whose `Servable.streams` is True; set the result of `context` at the end."""
    stream = registration.ready_servable().stream(request, limits)
    try:
        for chunk in stream:
            position = stream.positions[chunk.item]
            yield Chunk(
                id=request.id,
                model_name=registration.source.name,
                model_version=registration.source.version,
                input=position.input,
                image=position.image,
                prompt=chunk.prompt,
                text=chunk.text,
                final=chunk.final,
                parameters=position.parameters,
                usage=chunk.usage,
                finish=chunk.finish,
            )
    finally:
        samples = [
            SampleResult(input=position.input_index, index=position.image, item=position.item, prediction=prediction)
            for position, prediction in stream.predictions()
        ]
        context.result = InferenceResult(
            outputs=(),
            batch_size=len(stream.positions),
            decode_ns=stream.decode,
            model_ns=stream.model,
            samples=samples,
        )


def sample_results(
    context: RequestContext, request: InferenceRequest, registration: Registration, limits: Limits
) -> Generator[InferenceResult]:
    """Yield the results of `Servable.predict_each`; add each to the result of `context`."""
    for result in registration.ready_servable().predict_each(request, limits):
        context.result = result if context.result is None else context.result.combined_with(result)
        yield result
