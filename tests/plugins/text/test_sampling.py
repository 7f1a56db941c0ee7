import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.plugins.text.generation import ForcedTokens, Sampler
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
def test_any_parameters_give_valid_token_id(
    temperature: float, top_p: float, top_k: int | None, logits: list[float]
) -> None:
    scores = np.array([*logits, 0.0], np.float32)
    parameters = GenerationParameters(temperature=temperature, top_p=top_p, top_k=top_k, seed=0)
    assert 0 <= Sampler(parameters).pick(scores) < len(scores)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("score", [np.nan, np.inf])
def test_nan_or_infinite_score_is_model_failure(temperature: float, score: float) -> None:
    with rejects("the score of a token is", kind=ErrorKind.MODEL_FAILED):
        Sampler(GenerationParameters(temperature=temperature)).pick(np.array([1.0, score, 2.0], np.float32))


def test_forced_tokens_add_up_their_log_probabilities() -> None:
    logits = np.array([[2.0, 0.0, -1.0], [500.0, 499.0, -np.inf]], np.float32)
    forced = ForcedTokens([1, 0])
    assert [forced.pick(row) for row in logits] == [1, 0]
    first = 0.0 - np.log(np.exp([2.0, 0.0, -1.0]).sum())
    second = -np.log(1 + np.exp(-1.0))
    assert forced.log_likelihood == pytest.approx(first + second)
