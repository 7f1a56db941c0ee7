"""Test the choice of tokens, and the text that they become."""

from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from app.plugins.transformers.text.generation import Sampler
from app.plugins.transformers.text.tokenizer import Tokenizer
from tasks.image_text_to_text import GenerationParameters
from tasks.inference.error import ErrorKind
from tests.support.rejection import rejects

LOGITS = np.log(np.array([0.1, 0.4, 0.05, 0.3, 0.15], np.float32))


def sampled_frequencies(parameters: GenerationParameters, count: int = 4000) -> dict[int, float]:
    sampler = Sampler(parameters)
    ids, counts = np.unique([sampler.pick(LOGITS) for _ in range(count)], return_counts=True)
    return dict(zip(ids.tolist(), (counts / count).tolist(), strict=True))


def test_zero_temperature_picks_likeliest_token() -> None:
    assert sampled_frequencies(GenerationParameters(temperature=0.0, top_p=0.1, top_k=3), 10) == {1: 1.0}


@pytest.mark.parametrize(
    ("top_k", "expected"), [(None, {0: 0.1, 1: 0.4, 2: 0.05, 3: 0.3, 4: 0.15}), (2, {1: 4 / 7, 3: 3 / 7})]
)
def test_top_k_keeps_k_likeliest_tokens_with_their_probabilities(top_k: int | None, expected: dict[int, float]) -> None:
    found = sampled_frequencies(GenerationParameters(temperature=1.0, top_k=top_k, seed=1))
    assert found == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.0, {1}), (0.39, {1}), (0.5, {1, 3}), (0.8, {1, 3, 4}), (1.0, {0, 1, 2, 3, 4})]
)
def test_top_p_keeps_smallest_set_that_reaches_it(top_p: float, kept: set[int]) -> None:
    assert sampled_frequencies(GenerationParameters(temperature=1.0, top_p=top_p, seed=1)).keys() == kept


@given(
    temperature=st.floats(1e-300, 1e300),
    top_p=st.floats(0, 1),
    top_k=st.none() | st.integers(1, 50),
    logits=st.lists(st.floats(-(2.0**99), 2.0**99, width=32) | st.just(-np.inf), min_size=1, max_size=40),
)
def test_any_parameters_give_a_token(temperature: float, top_p: float, top_k: int | None, logits: list[float]) -> None:
    scores = np.array([*logits, 0.0], np.float32)
    parameters = GenerationParameters(temperature=temperature, top_p=top_p, top_k=top_k, seed=0)
    assert 0 <= Sampler(parameters).pick(scores) < len(scores)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("score", [np.nan, np.inf])
def test_nan_or_infinite_score_is_model_failure(temperature: float, score: float) -> None:
    with rejects("the score of a token is", kind=ErrorKind.MODEL_FAILED):
        Sampler(GenerationParameters(temperature=temperature)).pick(np.array([1.0, score, 2.0], np.float32))


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
