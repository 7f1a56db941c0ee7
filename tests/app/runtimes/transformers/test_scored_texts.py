"""Texts that go through a model together are answered as they are alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.runtimes.transformers.architecture import understand
from app.runtimes.transformers.network import load_network
from app.runtimes.transformers.scored_texts import TOLERANCE, ScoredTexts
from app.settings.model import ModelSettings, ModelSource, TransformersSettings
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.text.request import TextItem

pytestmark = pytest.mark.slow

NAMES = ["text_classifier", "token_classifier", "gpt2_classifier", "roberta_classifier"]


def softmax(logits: Any) -> Any:
    return logits.float().softmax(-1).cpu().numpy()


@pytest.fixture
def texts_of(folder_of: Callable[[str], Path]) -> Callable[..., tuple[ScoredTexts, list[int]]]:
    """A model of texts, and how many texts each of its calls had so far."""

    def made(name: str) -> tuple[ScoredTexts, list[int]]:
        known = understand(ModelSource(name=name, version="1", folder=folder_of(name)))
        network = load_network(known)
        calls: list[int] = []

        def count(module: Any, given: Any, output: Any) -> None:
            calls.append(len(output.logits))

        network.module.register_forward_hook(count)
        return ScoredTexts(known, network, softmax), calls

    return made


def items(*texts: str) -> list[TextItem]:
    return [TextItem(text, f"inputs[0].data[{index}]") for index, text in enumerate(texts)]


@pytest.mark.parametrize("name", NAMES)
def test_a_text_is_answered_the_same_whatever_stands_beside_it(texts_of: Callable[..., Any], name: str) -> None:
    texts, calls = texts_of(name)
    assert texts.together
    random = np.random.default_rng(0)
    words = ("cat", "dog", "Paris", "who?", "hello", "x", ",")
    asked = items(*(" ".join(random.choice(words, int(random.integers(1, 15)))) for _ in range(80)))
    calls.clear()
    together = texts(asked)
    assert sum(calls) == 80
    assert len(calls) == 3
    for (encoded, scores), item in zip(together, asked, strict=True):
        ((_, alone),) = texts([item])
        assert scores.shape == alone.shape
        assert scores.ndim == 1 or len(scores) == len(encoded.ids)
        assert np.abs(scores - alone).max() <= TOLERANCE


def test_a_call_has_no_more_tokens_than_it_may(texts_of: Callable[..., Any]) -> None:
    texts, calls = texts_of("gpt2_classifier")
    calls.clear()
    texts(items(*["x" * 400] * 12, "cat", "y" * 401))
    assert calls == [10, 4]


@pytest.mark.parametrize("name", ["gpt2_classifier_without_padding", "fnet_classifier"])
def test_a_model_that_is_not_indifferent_to_padding_answers_one_by_one(texts_of: Callable[..., Any], name: str) -> None:
    texts, calls = texts_of(name)
    assert not texts.together
    calls.clear()
    assert len(texts(items("cat", "dog and cat", "who?"))) == 3
    assert calls == [1, 1, 1]


def test_numbers_of_sixteen_bits_are_made_one_by_one(folder_of: Callable[[str], Path]) -> None:
    settings = ModelSettings(transformers=TransformersSettings(dtype="bfloat16"))
    folder = folder_of("text_classifier")
    known = understand(ModelSource(name="m", version="1", folder=folder, settings=settings))
    assert not ScoredTexts(known, load_network(known), softmax).together


def test_a_text_may_fill_the_places_that_are_free(texts_of: Callable[..., Any]) -> None:
    """Of RoBERTa's 64 places one is the padding's."""
    texts, _ = texts_of("roberta_classifier")
    texts(items("cat " * 61))
    with pytest.raises(InferenceError, match="at most 63 tokens, got a text of 64") as caught:
        texts(items("cat " * 62))
    assert (caught.value.kind, caught.value.path) == (ErrorKind.TOO_LARGE, "inputs[0].data[0]")


def test_a_text_without_tokens_is_refused(texts_of: Callable[..., Any]) -> None:
    texts, _ = texts_of("gpt2_classifier")
    with pytest.raises(InferenceError, match="got an empty one") as caught:
        texts(items("x", ""))
    assert (caught.value.kind, caught.value.path) == (ErrorKind.INVALID_REQUEST, "inputs[0].data[1]")
