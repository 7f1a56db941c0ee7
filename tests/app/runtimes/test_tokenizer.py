from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models

from app.runtimes.tokenizer import Tokenizer, load_tokenizer
from app.settings.model import ModelError


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory, byte_level: Callable[[Path], Path]) -> Tokenizer:
    return load_tokenizer(byte_level(tmp_path_factory.mktemp("bytes") / "tokenizer.json"))


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, with_special_tokens=False)


@given(text=st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(["the 🏳️‍🌈 the", "ﷺ", "naïve 日本語"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pieces_joined_are_the_text(tokenizer: Tokenizer, text: str) -> None:
    ids = encode(tokenizer, text)
    pieces = list(tokenizer.pieces(ids))
    assert "".join(pieces) == tokenizer.decode(ids) == text
    assert "" not in pieces


def test_a_character_of_several_tokens_comes_whole(tokenizer: Tokenizer) -> None:
    ids = encode(tokenizer, "a🐎b")
    assert len(ids) == 6
    assert list(tokenizer.pieces(ids)) == ["a", "🐎", "b"]


def test_a_piece_comes_before_the_next_token_is_asked_for(tokenizer: Tokenizer) -> None:
    asked: list[int] = []
    ids = encode(tokenizer, "xyz")
    stream = tokenizer.pieces(asked.append(each) or each for each in ids)
    assert next(stream) == "x"
    assert asked == ids[:1]


def test_half_a_character_at_the_end_is_told_as_such(tokenizer: Tokenizer) -> None:
    assert list(tokenizer.pieces(encode(tokenizer, "a🐎")[:3])) == ["a", "\N{REPLACEMENT CHARACTER}"]


def test_special_tokens_are_left_out(tokenizer: Tokenizer) -> None:
    ids = encode(tokenizer, "a<image> the<end>")
    assert len(ids) == 4
    assert list(tokenizer.pieces(ids)) == ["a", " the"]


def test_spaces_between_pieces_are_kept(tmp_path: Path) -> None:
    words: Any = tokenizers.Tokenizer(models.WordLevel({"▁the": 0, "▁cat": 1, "s": 2, "▁": 3}, unk_token="s"))
    words.decoder = decoders.Metaspace()
    words.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert list(tokenizer.pieces([0, 1, 2, 0])) == ["the", " cat", "s", " the"]
    assert tokenizer.unknown == 2


def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(ModelError, match=r"tokenizer\.json is missing"):
        load_tokenizer(path)
    for content in (b"", b"{}", b"\xff", b'{"model": {"type": "Nothing"}}'):
        path.write_bytes(content)
        with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read as a tokenizer"):
            load_tokenizer(path)


def test_pieces_go_on_behind_what_was_said_before() -> None:
    """A decoder that drops the space at the start of a text keeps it behind another word."""
    inner: Any = tokenizers.Tokenizer(models.WordLevel({"one": 0, "two": 1, "<s>": 2}, unk_token="one"))
    inner.add_special_tokens(["<s>"])
    made = Tokenizer(inner, None)
    assert list(made.pieces([1, 0])) == ["two", " one"]
    assert list(made.pieces([1, 0], [2, 0])) == [" two", " one"]
    assert list(made.pieces([], [0])) == []
