"""The data of streamed text answers."""

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from app.core.engine.error_text import error_text, is_ctrl_c
from metadata.request import output_parameters
from tasks.inference.error import InferenceError, model_failed
from tasks.inference.response import InferenceResult, Prediction, SampleResult
from tasks.task import InputGroup, TextChunk
from tasks.text.stopping import ChunkCollector

_logger = logging.getLogger(__name__)


class Chunk(TextChunk, frozen=True, kw_only=True, eq=False):
    """A `TextChunk` of the answer to one prompt about one image. The joined chunks equal the answer of `infer`.

    Answers come one after the other, in the order of the inputs, their images, and the prompts of each image.

    Attributes:
        id: the id of the request.
        model_name: the model that answers.
        model_version: its version.
        input: the name of the input.
        image: index of the image in that input.
        parameters: parameters of the output, the same on every chunk: the input's metadata.
    """

    id: str
    model_name: str
    model_version: str
    input: str
    image: int
    parameters: Mapping[str, object]


class TextStream:
    """The text that a model generates for the decoded inputs of one request, with timings.

    `chunks` are closed at the end. `TextChunk.item` counts the items of all `groups`. `gather` makes a prediction from
    the answers of an item, one for each prompt.
    """

    def __init__(
        self,
        chunks: Generator[TextChunk],
        groups: Sequence[InputGroup[Any]],
        decode_ns: int,
        gather: Callable[[Any, Sequence[TextChunk]], Prediction],
    ) -> None:
        self._positions = [(group, index) for group in groups for index in range(len(group.items))]
        self._decode_ns = decode_ns
        self._model_ns = 0
        self._chunks = chunks
        self._gather = gather
        self._collector = ChunkCollector()

    def chunk(self, chunk: TextChunk, request_id: str, model_name: str, model_version: str) -> Chunk:
        """Return a chunk of this stream with its position and its model."""
        group, index = self._positions[chunk.item]
        return Chunk(
            id=request_id,
            model_name=model_name,
            model_version=model_version,
            input=group.name,
            image=index,
            parameters=output_parameters(group.parameters),
            **{name: getattr(chunk, name) for name in TextChunk.__struct_fields__},
        )

    def result(self) -> InferenceResult:
        """Return the text so far as predictions."""
        samples: list[SampleResult] = []
        for number, answers in self._collector.answers.items():
            group, index = self._positions[number]
            item = group.items[index]
            samples.append(
                SampleResult(input=group.index, index=index, item=item, prediction=self._gather(item, answers))
            )
        return InferenceResult(
            outputs=(),
            batch_size=len(self._positions),
            decode_ns=self._decode_ns,
            model_ns=self._model_ns,
            samples=samples,
        )

    def __iter__(self) -> Iterator[TextChunk]:
        """Yield the chunks. Raise MODEL_FAILED for any exception of the model, except its own `InferenceError`."""
        try:
            while True:
                started = time.perf_counter_ns()
                try:
                    chunk = next(self._chunks, None)
                except InferenceError:
                    raise
                except BaseException as error:
                    if is_ctrl_c(error):
                        raise
                    # `SystemExit` and `KeyboardInterrupt` from model code must not stop the worker.
                    raise model_failed(f"The model failed: {error_text(error)}") from error
                finally:
                    self._model_ns += time.perf_counter_ns() - started
                if chunk is None:
                    return
                self._collector.add(chunk)
                yield chunk
        finally:
            try:
                self._chunks.close()
            except BaseException:  # `SystemExit` and `KeyboardInterrupt` from model code must not stop the worker
                _logger.exception("a stream could not be closed")
