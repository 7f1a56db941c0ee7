"""Measure answers to questions by exact match, as SQuAD does (Rajpurkar et al. 2016).

Texts are compared in lower case, without punctuation and without English articles.
"""

import re
import string
import unicodedata
from collections.abc import Sequence

from app.plugins.evaluation.answers import EvaluatedItem
from app.plugins.evaluation.report import Measures, Mistake, figures_of, slice_tables

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def measure_texts(results: Sequence[EvaluatedItem], slices: Sequence[str] = ()) -> Measures:
    """Return the share of right answers over all questions and over slices."""
    scores = [exact_match(result.answer, result.item.answers) for result in results]

    def mean(indexes: Sequence[int]) -> float | None:
        return sum(scores[index] for index in indexes) / len(indexes) if indexes else None

    mistakes: list[Mistake] = []
    for result, score in zip(results, scores, strict=True):
        if not score:
            right, answer = " / ".join(result.item.answers), result.answer or "(nothing)"
            description = f"{result.item.question} Right: {right}. Answered: {answer}"
            mistakes.append(Mistake(result=result, severity=1, description=description))
    return Measures(
        figures=figures_of({"exact_match": mean(range(len(scores)))}, {"exact_match": "exact match"}),
        tables=tuple(slice_tables(results, slices, ("questions", "exact match"), lambda indexes: [mean(indexes)])),
        mistakes=tuple(mistakes),
        notes=("Exact match ignores case, punctuation and English articles, as in SQuAD.",),
    )


def exact_match(answer: str, correct: Sequence[str]) -> float:
    """Return 1 if `answer` equals a correct answer after normalization, otherwise 0."""
    return float(any(_normalized(answer) == _normalized(expected) for expected in correct))


def _normalized(text: str) -> str:
    folded = unicodedata.normalize("NFC", text).lower()
    return " ".join(_ARTICLES.sub(" ", folded.translate(_PUNCTUATION)).split())
