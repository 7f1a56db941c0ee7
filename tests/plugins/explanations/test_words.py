"""Explain texts and answers of models whose dependence on words or regions is known."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.core.engine.models.servable import Servable
from app.plugins.explanations import words
from app.plugins.explanations.pixels import (
    ExplanationMethod,
    ExplanationParameters,
    ExplanationTarget,
    explain_target,
    sample_count,
)
from app.plugins.explanations.request import explain_request
from app.plugins.explanations.words import TextExplanationParameters, WordImportance, explain_words
from tasks.image_classification import Classification
from tasks.image_text_to_text import Answers, GenerationParameters, ImageTextToText, PromptedImage
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits
from tasks.task import TaskType
from tasks.text.generation import Message, question
from tasks.text.request import TextItem
from tasks.text_classification import ClassifiedText, TextClassification
from tasks.text_generation import ContinuedText, Generation, TextGeneration, TextGenerationParameters
from tasks.token_classification import TaggedText, TokenClassification, TokenParameters
from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image
from tests.plugins.explanations.subjects import noise, subject_of
from tests.support.data.requests import request, text_input
from tests.support.models.fake_models import stand_in_metadata, tag_colours


def sentiment(inputs: Sequence[ClassifiedText]) -> Sequence[Classification]:
    """Score "good" in a text with 0.9, and "not" with 0.3 less."""
    scores = [0.9 * ("good" in item.item.text) - 0.3 * ("not" in item.item.text) for item in inputs]
    return [
        Classification(labels=["positive", "other"], scores=np.clip(np.array([score, 0.1], np.float32), 0, 1))
        for score in scores
    ]


def subject(text: str, label: str | None = None) -> ExplanationTarget:
    task, item = TextClassification(), ClassifiedText(TextItem(text, ""), SelectionParameters())
    (prediction,) = sentiment([item])
    targets = task.targets(prediction, task.postprocess(item, prediction), label, 10)
    return ExplanationTarget(task=task, model=sentiment, item=item, predictions=targets)


def explained(
    target: ExplanationTarget, samples: int = 400, should_continue: Callable[[], bool] = lambda: True
) -> list[WordImportance]:
    return explain_words(target, TextExplanationParameters(), samples, should_continue)


def by_word(importance: WordImportance) -> dict[str, float]:
    return dict(zip(importance.words, importance.importances.round(6).tolist(), strict=True))


def test_word_that_decides_a_class_has_its_score_as_importance() -> None:
    (importance,) = explained(subject("A good film, not long."))
    assert (importance.label, importance.score, importance.samples) == ("positive", pytest.approx(0.6), 7)
    assert by_word(importance) == {"A": 0, "good": 0.6, "film": 0, ",": 0, "not": -0.3, "long": 0, ".": 0}
    assert [("A good film, not long."[start:end]) for start, end in importance.spans] == importance.words


def test_requested_class_is_explained() -> None:
    (importance,) = explained(subject("good", "other"))
    assert (importance.label, by_word(importance)) == ("other", {"good": 0})
    with pytest.raises(InferenceError, match="The model has no class 'sad'"):
        subject("good", "sad")


def test_only_the_words_of_an_entity_change_its_score() -> None:
    text = "red, then blue and red"
    item = TaggedText(TextItem(text, ""), TokenParameters())
    first, second, third = explained(subject_of(TokenClassification(), tag_colours, item))
    assert [importance.record for importance in (first, second, third)] == tag_colours([item])[0].records()
    # The model gives the n-th colour the score 1/n, so a colour before another one lowers its score.
    assert first.importances.tolist() == pytest.approx([1, 0, 0, 0, 0, 0])
    assert second.importances.tolist() == pytest.approx([-0.5, 0, 0, 0.5, 0, 0])
    assert third.importances.tolist() == pytest.approx([-1 / 6, 0, 0, -1 / 6, 0, 1 / 3], abs=1e-6)


def test_scripts_without_spaces_are_split_into_characters() -> None:
    text = "東京 é x-1"
    assert [text[start:end] for start, end in words.word_spans(text, 9)] == ["東", "京", "é", "x", "-", "1"]


def test_many_words_are_explained_in_groups() -> None:
    target = subject("one two three good five")
    counts = [words.copy_count(target, TextExplanationParameters(samples=samples), 400) for samples in (2, 3, 9)]
    assert counts == [2, 3, 5]
    (importance,) = explained(target, 2)
    assert by_word(importance) == {"one two three": 0, "good five": 0.9}


def test_words_after_the_end_of_time_have_no_importance() -> None:
    (importance,) = explained(subject("good " + "x " * 30), should_continue=lambda: False)
    assert importance.samples == 16
    assert np.isnan(importance.importances).tolist() == [False] * 16 + [True] * 15


def likelihood_target(task: Any, item: Any, prediction: Any, log_likelihood: Callable[[Any], float]) -> Any:
    def log_likelihoods(inputs: Sequence[Any]) -> Sequence[NDArray[np.float64]]:
        return [np.array([log_likelihood(item)]) for item in inputs]

    targets = task.targets(prediction, task.postprocess(item, prediction), None, 10)
    return ExplanationTarget(task=task, model=log_likelihoods, item=item, predictions=targets)


class Capital:
    """Continue each text with " Paris", which is likely after "France"."""

    def __call__(self, inputs: Sequence[ContinuedText], /) -> Sequence[Generation]:
        return [Generation(" Paris") for _ in inputs]

    def log_likelihoods(self, inputs: Sequence[ContinuedText], _: object, /) -> Sequence[NDArray[np.float64]]:
        return [np.array([-1.0 if "France" in item.item.text else -8.0]) for item in inputs]


def test_word_that_a_continuation_needs_is_the_important_one() -> None:
    servable = Servable(TextGeneration(), Capital(), stand_in_metadata(TaskType.TEXT_GENERATION), {})
    text = request(text_input("The capital of France is"))
    (((importance,),),) = explain_request(servable, text, Limits(), lambda: True).explanations
    assert (importance.label, importance.record) == (" Paris", Generation(" Paris").records()[0])
    assert (importance.score, importance.importances.tolist()) == (-1, [0, 0, 0, 7, 0])


def test_conversations_are_not_explained_by_words() -> None:
    parameters = TextGenerationParameters(messages=(Message("user", question("a").content[1:]),))
    item = ContinuedText(TextItem("a", ""), parameters)
    with pytest.raises(InferenceError, match="Expected a text to explain, got messages"):
        explained(likelihood_target(TextGeneration(), item, Generation("b"), lambda _: 0.0))
    with pytest.raises(InferenceError, match="label: Expected none: the answers of this model are texts"):
        TextGeneration().targets(Generation("b"), Generation("b"), "b", 10)


@pytest.mark.parametrize("method", ExplanationMethod)
def test_region_that_an_answer_needs_is_salient(method: ExplanationMethod) -> None:
    pixels, region = noise(64, 48), (slice(24, 48), slice(32, 64))

    def log_likelihood(item: PromptedImage) -> float:
        return -10 * float((np.abs(item.image.pixels[region].astype(int) - pixels[region]) > 24).mean())

    item = PromptedImage((Image(pixels),), ("What?",), GenerationParameters())
    target = likelihood_target(ImageTextToText(), item, Answers(prompts=("What?",), answers=("a cat",)), log_likelihood)
    parameters = ExplanationParameters(method=method, grid=4)
    samples = sample_count(target, parameters, 200)
    (explanation,) = explain_target(target, parameters, samples, lambda: True)
    saliency = explanation.saliency
    assert explanation.label == "a cat"
    assert saliency[region].mean() > 1.5 * max(saliency[:24].mean(), saliency[:, :32].mean())
