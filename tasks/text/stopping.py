"""Join the chunks of generated texts, and cut them at stop sequences."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import msgspec

from tasks.task import Model, StreamingModel, TextChunk, TextPrediction


class ChunkCollector:
    """Joins the chunks of answers: `answers` has, by item, the answers to its prompts so far, each as one chunk."""

    def __init__(self) -> None:
        self._chunks: dict[int, list[list[TextChunk]]] = {}

    def add(self, chunk: TextChunk) -> None:
        """Add the next chunk of an answer."""
        prompts = self._chunks.setdefault(chunk.item, [])
        while len(prompts) <= chunk.prompt:
            prompts.append([])
        prompts[chunk.prompt].append(chunk)

    @property
    def answers(self) -> Mapping[int, Sequence[TextChunk]]:
        return {item: [_joined(chunks) for chunks in prompts] for item, prompts in self._chunks.items()}


def generate(items: Sequence[Any], model: Any, last_prompt: int = 0) -> Generator[TextChunk]:
    """Answer `items` in chunks, up to their stop sequences; the last one has the prompts up to `last_prompt`.

    A model that cannot stream returns each answer in one chunk.
    """
    chunks = model.stream(items) if isinstance(model, StreamingModel) else _complete_chunks(items, model)
    stops = [item.parameters.stop for item in items]
    return stop_chunks(chunks, stops, (len(items) - 1, last_prompt)) if any(stops) else chunks


def _complete_chunks(items: Sequence[Any], model: Model[Any, TextPrediction]) -> Generator[TextChunk]:
    for index, item in enumerate(items):
        (prediction,) = model([item])
        yield from prediction.chunks(index)


def cut(answer: TextChunk, stop: Sequence[str]) -> TextChunk:
    """Return a complete answer up to the first of the `stop` sequences, which is left out.

    An answer that is cut locates nothing.
    """
    end = _find(answer.text, stop)
    cut_off: dict[str, Any] = {"finish": "stop", "grounding": None}
    return answer if end is None else msgspec.structs.replace(answer, text=answer.text[:end], **cut_off)


def stop_chunks(
    chunks: Generator[TextChunk], stops: Sequence[Sequence[str] | None], last: tuple[int, int]
) -> Generator[TextChunk]:
    """Yield `chunks` up to a stop sequence of each answer; `stops` are those of each item.

    Text that may begin one is held back. `chunks` are closed after the last answer, so that its generation ends: `last`
    is its item and its prompt.
    """
    answer, pending, ended = (-1, 0), "", False
    try:
        for chunk in chunks:
            if (chunk.item, chunk.prompt) != answer:
                answer, pending, ended = (chunk.item, chunk.prompt), "", False
            stop = stops[chunk.item]
            if not stop:
                yield chunk
                continue
            if ended:
                continue
            pending += chunk.text
            end = _find(pending, stop)
            if end is not None:
                ended = True
                yield msgspec.structs.replace(chunk, text=pending[:end], final=True, finish="stop", grounding=None)
                if answer == last:
                    return
                continue
            sent = len(pending) if chunk.final else len(pending) - _held_back(pending, stop)
            if sent or chunk.final:
                yield msgspec.structs.replace(chunk, text=pending[:sent])
                pending = pending[sent:]
    finally:
        chunks.close()


def _joined(chunks: Sequence[TextChunk]) -> TextChunk:
    return msgspec.structs.replace(chunks[-1], text="".join(chunk.text for chunk in chunks))


def _find(text: str, stop: Sequence[str]) -> int | None:
    return min((index for sequence in stop if (index := text.find(sequence)) >= 0), default=None)


def _held_back(text: str, stop: Sequence[str]) -> int:
    """Return the length of the longest end of `text` that begins a stop sequence."""
    starts = (sequence[:length] for sequence in stop for length in range(1, min(len(sequence), len(text) + 1)))
    return max((len(start) for start in starts if text.endswith(start)), default=0)
