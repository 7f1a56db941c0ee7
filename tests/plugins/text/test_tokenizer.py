from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from app.plugins.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """A byte-level BPE tokenizer with three merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*alphabet, "th", "the", "Ġthe"])}
    inner: Any = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[("t", "h"), ("th", "e"), ("Ġ", "the")]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<image>", "<end>"])
    return Tokenizer(inner, None)


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


def test_spaces_between_chunks_are_kept() -> None:
    words: Any = tokenizers.Tokenizer(models.WordLevel({"▁the": 0, "▁cat": 1, "s": 2, "▁": 3}, unk_token="s"))
    words.decoder = decoders.Metaspace()
    assert list(Tokenizer(words, 2).decode_stream([0, 1, 2, 0])) == ["the", " cat", "s", " the"]


def test_chunks_after_previous_tokens_keep_leading_space() -> None:
    """A decoder that drops the space at the start of a text keeps it behind another word."""
    word_level: Any = tokenizers.Tokenizer(models.WordLevel({"one": 0, "two": 1, "<s>": 2}, unk_token="one"))
    word_level.add_special_tokens(["<s>"])
    tokenizer = Tokenizer(word_level, None)
    assert list(tokenizer.decode_stream([1, 0])) == ["two", " one"]
    assert list(tokenizer.decode_stream([1, 0], [2, 0])) == [" two", " one"]
    assert list(tokenizer.decode_stream([], [0])) == []
