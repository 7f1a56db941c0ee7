"""Cut generated texts at stop sequences."""

from collections.abc import Generator, Sequence

import msgspec

from tasks.task import TextChunk


def cut(text: str, stop: Sequence[str] | None) -> str:
    """Return `text` up to the first of the `stop` sequences, which is left out."""
    end = _find(text, stop) if stop else None
    return text if end is None else text[:end]


def stop_chunks(
    chunks: Generator[TextChunk], stops: Sequence[Sequence[str] | None], last: tuple[int, int]
) -> Generator[TextChunk]:
    """Yield `chunks` up to a stop sequence of each answer. Text that may begin one is held back.

    Args:
        chunks: the answers; closed after the last one, so that its generation ends.
        stops: the stop sequences of each item.
        last: the item and the prompt of the last answer.
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
                yield msgspec.structs.replace(chunk, text=pending[:end], final=True, finish="stop")
                if answer == last:
                    return
                continue
            sent = len(pending) if chunk.final else len(pending) - _held_back(pending, stop)
            if sent or chunk.final:
                yield msgspec.structs.replace(chunk, text=pending[:sent])
                pending = pending[sent:]
    finally:
        chunks.close()


def _find(text: str, stop: Sequence[str]) -> int | None:
    return min((index for sequence in stop if (index := text.find(sequence)) >= 0), default=None)


def _held_back(text: str, stop: Sequence[str]) -> int:
    """Return the length of the longest end of `text` that begins a stop sequence."""
    return max(
        (
            length
            for sequence in stop
            for length in range(1, min(len(sequence), len(text) + 1))
            if text.endswith(sequence[:length])
        ),
        default=0,
    )
