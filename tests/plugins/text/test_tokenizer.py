from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models

from app.core.settings.model import ModelError
from app.plugins.text.tokenizer import Tokenizer, load_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory, byte_level: Callable[[Path], Path]) -> Tokenizer:
    return load_tokenizer(byte_level(tmp_path_factory.mktemp("bytes") / "tokenizer.json"))


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, with_special_tokens=False)


@given(text=st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(["the 🏳️‍🌈 the", "ﷺ", "naïve 日本語"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_joined_chunks_equal_text(tokenizer: Tokenizer, text: str) -> None:
    ids = encode(tokenizer, text)
    chunks = list(tokenizer.decode_stream(ids))
    assert "".join(chunks) == tokenizer.decode(ids) == text
    assert "" not in chunks


def test_character_of_several_tokens_arrives_in_one_chunk(tokenizer: Tokenizer) -> None:
    ids = encode(tokenizer, "a🐎b")
    assert len(ids) == 6
    assert list(tokenizer.decode_stream(ids)) == ["a", "🐎", "b"]


def test_chunk_is_yielded_before_next_token_is_requested(tokenizer: Tokenizer) -> None:
    requested: list[int] = []
    ids = encode(tokenizer, "xyz")
    stream = tokenizer.decode_stream(requested.append(token_id) or token_id for token_id in ids)
    assert next(stream) == "x"
    assert requested == ids[:1]


def test_incomplete_last_character_becomes_replacement_character(tokenizer: Tokenizer) -> None:
    assert list(tokenizer.decode_stream(encode(tokenizer, "a🐎")[:3])) == ["a", "\N{REPLACEMENT CHARACTER}"]


def test_special_tokens_are_left_out(tokenizer: Tokenizer) -> None:
    ids = encode(tokenizer, "a<image> the<end>")
    assert len(ids) == 4
    assert list(tokenizer.decode_stream(ids)) == ["a", " the"]


def test_spaces_between_chunks_are_kept(tmp_path: Path) -> None:
    words: Any = tokenizers.Tokenizer(models.WordLevel({"▁the": 0, "▁cat": 1, "s": 2, "▁": 3}, unk_token="s"))
    words.decoder = decoders.Metaspace()
    words.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert list(tokenizer.decode_stream([0, 1, 2, 0])) == ["the", " cat", "s", " the"]
    assert tokenizer.unknown == 2


def test_missing_or_invalid_tokenizer_file_is_named_in_error(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(ModelError, match=r"tokenizer\.json is missing"):
        load_tokenizer(path)
    for content in (b"", b"{}", b"\xff", b'{"model": {"type": "Nothing"}}'):
        path.write_bytes(content)
        with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read as a tokenizer"):
            load_tokenizer(path)


def test_chunks_after_previous_tokens_keep_leading_space() -> None:
    """A decoder that drops the space at the start of a text keeps it behind another word."""
    word_level: Any = tokenizers.Tokenizer(models.WordLevel({"one": 0, "two": 1, "<s>": 2}, unk_token="one"))
    word_level.add_special_tokens(["<s>"])
    tokenizer = Tokenizer(word_level, None)
    assert list(tokenizer.decode_stream([1, 0])) == ["two", " one"]
    assert list(tokenizer.decode_stream([1, 0], [2, 0])) == [" two", " one"]
    assert list(tokenizer.decode_stream([], [0])) == []
