"""Test stop sequences."""

from collections.abc import Generator, Sequence

import pytest

from tasks.task import TextChunk, TokenUsage
from tasks.text.stopping import cut, stop_chunks


class Source:
    """Yield the texts of each answer token by token, and remember how far it was read."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = answers
        self.count = 0
        self.closed = False

    def chunks(self) -> Generator[TextChunk]:
        try:
            for item, texts in enumerate(self._answers):
                for position, text in enumerate(texts):
                    self.count += 1
                    yield TextChunk(item=item, text=text, usage=TokenUsage(5, position + 1))
                yield TextChunk(item=item, text="", final=True, finish="length")
        finally:
            self.closed = True


def stopped(source: Source, *stops: Sequence[str] | None) -> list[TextChunk]:
    return list(stop_chunks(source.chunks(), stops, (len(stops) - 1, 0)))


@pytest.mark.parametrize(
    ("texts", "stop", "text"),
    [
        (["a", "b", "c", "d"], ["bc"], "a"),
        (["abc"], ["bc"], "a"),
        (["a", "b", "b", "c", "d"], ["bc"], "ab"),
        (["a", "b", "a", "b", "c"], ["abc", "bab"], "a"),
        (["a", "b"], ["bc"], "ab"),
        (["a", "b"], ["a"], ""),
        (["x", "\n", "\n", "y"], ["\n\n"], "x"),
    ],
)
def test_answer_ends_before_the_first_stop_sequence(texts: Sequence[str], stop: Sequence[str], text: str) -> None:
    chunks = stopped(Source(texts), stop)
    assert "".join(chunk.text for chunk in chunks) == text
    assert cut(TextChunk(item=0, text="".join(texts), final=True), stop).text == text
    assert [chunk.final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].finish == ("length" if text == "".join(texts) else "stop")


def test_generation_ends_with_the_token_of_the_stop_sequence() -> None:
    source = Source(["a", "b", "c", "d", "e"])
    chunks = stopped(source, ["c"])
    assert (source.count, source.closed) == (3, True)
    assert chunks[-1].usage == TokenUsage(5, 3)


def test_text_that_cannot_begin_a_stop_sequence_is_not_held_back() -> None:
    chunks = stop_chunks(Source(["a", "b", "x", "d"]).chunks(), [["bc"]], (0, 0))
    assert [next(chunks).text for _ in range(3)] == ["a", "bx", "d"]


def test_each_answer_has_its_own_stop_sequences() -> None:
    chunks = stopped(Source(["a", "b"], ["a", "b"], ["a", "b"]), ["b"], None, ["a"])
    assert ["".join(chunk.text for chunk in chunks if chunk.item == item) for item in range(3)] == ["a", "ab", ""]
    assert [chunk.item for chunk in chunks if chunk.final] == [0, 1, 2]
