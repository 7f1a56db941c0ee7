"""White space around an answer that is streamed in chunks."""

import pytest

from tasks.image_text_to_text import strip_chunks


@pytest.mark.parametrize(
    "chunks",
    [
        [" a", " circle "],
        ["", " ", "\n a", " ", " b", " \t", " ", "c ", "\n"],
        [" ", "\n"],
        [],
        ["a", " ", " "],
        ["\u3000a\u00a0", "\u00a0b"],
    ],
)
def test_stripped_chunks_join_to_the_stripped_text(chunks: list[str]) -> None:
    result = list(strip_chunks(chunks))
    assert "".join(result) == "".join(chunks).strip()
    assert all(result)
