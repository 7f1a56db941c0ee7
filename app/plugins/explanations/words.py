"""Explain predictions for a text: how much the score of each prediction changes without each of its words.

Each word is left out once (occlusion, as Zeiler and Fergus 2014 do with regions of an image). A word is a run of
letters and digits, a character of a script without spaces between words, or a punctuation mark.
"""

import re
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.plugins.explanations.pixels import ExplanationTarget, TargetParameters
from tasks.inference.request import Positive
from tasks.inference.response import Record
from tasks.saliency.probe import Span
from tasks.vision.filtering import SCORE_DECIMALS

_CHUNK_SIZE = 16
_NO_WORDS = "..."
"""The copy of a text without its only word."""
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Thai, Lao, Burmese, Khmer, kana and Chinese characters."""
_WORD = re.compile(rf"[{_UNSPACED}]|(?:(?![{_UNSPACED}])\w)+|[^\w\s]")


class TextExplanationParameters(TargetParameters, frozen=True, kw_only=True):
    """Parameters of a request that explains texts.

    Attributes:
        method: only occlusion.
        samples: maximum number of copies of a text. In a longer text, neighbouring words form groups.
    """

    method: Literal["occlusion"] = "occlusion"
    samples: Positive | None = None


class WordImportance(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The explanation of one prediction for a text.

    `score` is 0..1, or the log-likelihood of an answer, in nats. The `words`, or groups of them, are at `spans`, and
    their `importances` are `score` minus that without the word; NaN for words for which time ran out. The model
    processed `samples` copies of the text.
    """

    label: str
    score: float
    record: Record
    words: Sequence[str]
    spans: Sequence[Span]
    importances: NDArray[np.float64]
    samples: int


def word_spans(text: str, max_spans: int) -> list[Span]:
    """Return the place of each word, or of groups of neighbouring words such that there are at most `max_spans`."""
    words = [match.span() for match in _WORD.finditer(text)]
    size = max(1, -(-len(words) // max_spans))
    groups = [words[index : index + size] for index in range(0, len(words), size)]
    return [(group[0][0], group[-1][1]) for group in groups]


def copy_count(target: ExplanationTarget, parameters: TextExplanationParameters, default: int) -> int:
    """Return the copies of one text that `parameters` require: at most `default` if they set no number."""
    return len(word_spans(target.item.item.text, parameters.samples or default))


def explain_words(
    target: ExplanationTarget,
    parameters: TextExplanationParameters,
    samples: int,
    should_continue: Callable[[], bool],
) -> list[WordImportance]:
    """Explain each prediction for one text by at most `samples` copies; fewer if `should_continue` ends it.

    Raise MODEL_FAILED if the model fails on a copy.
    """
    del parameters
    text: str = target.item.item.text
    spans = word_spans(text, max(1, samples))
    scores = np.full((len(spans), target.prediction_count), np.nan)
    done = 0
    while target.prediction_count and done < len(spans):
        removed = [_with_space(text, span) for span in spans[done : done + _CHUNK_SIZE]]
        # Some models refuse an empty text.
        copies = [text[:start] + text[end:] or _NO_WORDS for start, end in removed]
        scores[done : done + len(copies)] = target.scores(copies, removed)
        done += len(copies)
        if not should_continue():
            break
    predictions = target.predictions
    return [
        WordImportance(
            label=label,
            score=round(float(score), SCORE_DECIMALS),
            record=record,
            words=[text[start:end] for start, end in spans],
            spans=spans,
            importances=float(score) - scores_without,
            samples=done,
        )
        for label, score, record, scores_without in zip(
            predictions.labels, predictions.scores, predictions.records(), scores.T, strict=True
        )
    ]


def _with_space(text: str, span: Span) -> Span:
    """Return a span with the white space after it, so that its neighbours keep the usual distance."""
    start, end = span
    while end < len(text) and text[end].isspace():
        end += 1
    return start, end
