"""White space around an answer that comes in pieces."""

import pytest

from tasks.image_text_to_text import stripped


@pytest.mark.parametrize(
    "pieces",
    [
        [" a", " circle "],
        ["", " ", "\n a", " ", " b", " \t", " ", "c ", "\n"],
        [" ", "\n"],
        [],
        ["a", " ", " "],
        ["\u3000a\u00a0", "\u00a0b"],
    ],
)
def test_stripped_pieces_join_to_the_stripped_whole(pieces: list[str]) -> None:
    found = list(stripped(pieces))
    assert "".join(found) == "".join(pieces).strip()
    assert all(found)
