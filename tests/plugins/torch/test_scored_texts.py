"""Test that batched texts get the same scores as single texts."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from app.core.plugins import registry
from app.core.settings.model import ModelSource
from app.plugins.torch.architecture import read_model_spec
from app.plugins.torch.heads.text_classification import TOLERANCE, TextScorer
from app.plugins.torch.network import load_network
from app.plugins.torch.settings import TransformersSettings
from tasks.inference.error import ErrorKind
from tasks.text.request import TextItem
from tests.plugins.torch.asking import FolderOf
from tests.support.rejection import rejects

pytestmark = pytest.mark.slow

NAMES = ["text_classifier", "token_classifier", "gpt2_classifier", "roberta_classifier"]


def softmax(logits: Any) -> Any:
    return logits.float().softmax(-1).cpu().numpy()


@pytest.fixture
def texts_of(folder_of: FolderOf) -> Callable[..., tuple[TextScorer, list[int]]]:
    """Return a function that loads a text model, and returns it with the batch sizes of its calls."""

    def load_texts(name: str) -> tuple[TextScorer, list[int]]:
        known = read_model_spec(ModelSource(name=name, version="1", folder=folder_of(name)))
        network = load_network(known)
        calls: list[int] = []

        def count(module: Any, arguments: Any, output: Any) -> None:
            calls.append(len(output.logits))

        network.module.register_forward_hook(count)
        return TextScorer(known, network, softmax), calls

    return load_texts


def items(*texts: str) -> list[TextItem]:
    return [TextItem(text, f"inputs[0].data[{index}]") for index, text in enumerate(texts)]


@pytest.mark.parametrize("name", NAMES)
def test_batched_text_gets_same_scores_as_alone(texts_of: Callable[..., Any], name: str) -> None:
    texts, calls = texts_of(name)
    assert texts.is_batched
    random = np.random.default_rng(0)
    words = ("cat", "dog", "Paris", "who?", "hello", "x", ",")
    text_items = items(*(" ".join(random.choice(words, int(random.integers(1, 15)))) for _ in range(80)))
    calls.clear()
    batched = texts(text_items)
    assert sum(calls) == 80
    assert len(calls) == 3
    for (encoded, scores), item in zip(batched, text_items, strict=True):
        ((_, alone),) = texts([item])
        assert scores.shape == alone.shape
        assert scores.ndim == 1 or len(scores) == len(encoded.ids)
        assert np.abs(scores - alone).max() <= TOLERANCE


def test_batches_are_limited_by_tokens(texts_of: Callable[..., Any]) -> None:
    texts, calls = texts_of("gpt2_classifier")
    calls.clear()
    texts(items(*["x" * 400] * 12, "cat", "y" * 401))
    assert calls == [10, 4]


@pytest.mark.parametrize("name", ["gpt2_classifier_without_padding", "fnet_classifier"])
def test_model_affected_by_padding_answers_one_by_one(texts_of: Callable[..., Any], name: str) -> None:
    texts, calls = texts_of(name)
    assert not texts.is_batched
    calls.clear()
    assert len(texts(items("cat", "dog and cat", "who?"))) == 3
    assert calls == [1, 1, 1]


def test_16_bit_models_answer_one_by_one(folder_of: FolderOf) -> None:
    settings = registry().model_settings(transformers=TransformersSettings(dtype="bfloat16"))
    folder = folder_of("text_classifier")
    known = read_model_spec(ModelSource(name="m", version="1", folder=folder, settings=settings))
    assert not TextScorer(known, load_network(known), softmax).is_batched


def test_text_may_fill_all_free_positions(texts_of: Callable[..., Any]) -> None:
    """Use RoBERTa, which reserves one of its 64 positions for padding."""
    texts, _ = texts_of("roberta_classifier")
    texts(items("cat " * 61))
    with rejects("at most 63 tokens, got a text of 64", "inputs[0].data[0]", ErrorKind.TOO_LARGE):
        texts(items("cat " * 62))


def test_text_without_tokens_is_rejected(texts_of: Callable[..., Any]) -> None:
    texts, _ = texts_of("gpt2_classifier")
    with rejects("got an empty one", "inputs[0].data[1]"):
        texts(items("x", ""))
