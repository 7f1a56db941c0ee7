"""Measure answers to questions: exact match, token F1 and ANLS, each against the best correct answer.

Exact match and F1 are those of SQuAD (Rajpurkar et al. 2016): texts are compared in lower case, without punctuation and
without English articles. ANLS is that of ST-VQA (Biten et al. 2019): 1 less the edit distance as a share of the longer
text, or 0 where that share is a half or more.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np

from app.plugins.evaluation.answers import EvaluatedItem
from app.plugins.evaluation.report import Measures, Mistake, figures_of, slice_tables

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_MAX_DISTANCE = 0.5
_TITLES = {"exact_match": "exact match", "f1": "token F1", "anls": "ANLS"}


def measure_texts(results: Sequence[EvaluatedItem], slices: Sequence[str] = ()) -> Measures:
    """Return the mean of each metric over all questions and over slices."""
    scores = [_scores(result) for result in results]
    columns = ("questions", *_TITLES.values())
    tables = slice_tables(results, slices, columns, lambda indexes: _means([scores[index] for index in indexes]))
    means = _means(scores)
    mistakes: list[Mistake] = []
    for result, (exact, f1, similarity) in zip(results, scores, strict=True):
        right, answer = " / ".join(result.item.answers), result.answer or "(nothing)"
        description = f"{result.item.question} Right: {right}. Answered: {answer}"
        if exact < 1:
            severity = 1 - f1 + (1 - similarity) / 2
            mistakes.append(Mistake(result=result, severity=severity, description=description))
    return Measures(
        figures=figures_of(dict(zip(_TITLES, means, strict=True)), _TITLES),
        tables=tuple(tables),
        mistakes=tuple(sorted(mistakes, key=lambda mistake: -mistake.severity)),
        notes=("Exact match and F1 look past case, punctuation and English articles, as SQuAD's do; ANLS past case.",),
    )


def exact_match(answer: str, correct: Sequence[str]) -> float:
    """Return 1 if `answer` equals a correct answer after normalization, otherwise 0."""
    return float(any(_normalized(answer) == _normalized(expected) for expected in correct))


def token_f1(answer: str, correct: Sequence[str]) -> float:
    """Return the F1 of the words against the best correct answer."""
    return max(_f1(_normalized(answer).split(), _normalized(expected).split()) for expected in correct)


def anls(answer: str, correct: Sequence[str]) -> float:
    """Return the normalized Levenshtein similarity of `answer` to the nearest correct answer."""
    return max(_similarity(_folded(answer), _folded(expected)) for expected in correct)


def edit_distance(first: str, second: str) -> int:
    """Return the Levenshtein distance: inserted, deleted or substituted characters."""
    codes = np.array([ord(letter) for letter in second], np.int64)
    positions = np.arange(len(second) + 1)
    row = positions.copy()
    for index, letter in enumerate(first, 1):
        changed = np.minimum(row[1:] + 1, row[:-1] + (codes != ord(letter)))
        row = np.concatenate([[index], changed])
        # Insertions cost 1 for each position: subtract this slope, take the running minimum, and add it again.
        row = np.minimum.accumulate(row - positions) + positions
    return int(row[-1])


def _scores(result: EvaluatedItem) -> tuple[float, float, float]:
    answer, correct = result.answer, result.item.answers
    return exact_match(answer, correct), token_f1(answer, correct), anls(answer, correct)


def _means(scores: Sequence[tuple[float, float, float]]) -> tuple[float | None, ...]:
    return tuple(sum(values) / len(scores) for values in zip(*scores, strict=True)) if scores else (None, None, None)


def _normalized(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", _folded(text).translate(_PUNCTUATION)).split())


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).lower().split())


def _f1(answer: Sequence[str], correct: Sequence[str]) -> float:
    if not answer or not correct:
        return float(answer == correct)
    shared = sum((Counter(answer) & Counter(correct)).values())
    return 2 * shared / (len(answer) + len(correct))


def _similarity(first: str, second: str) -> float:
    longer = max(len(first), len(second))
    if not longer:
        return 1.0
    if abs(len(first) - len(second)) / longer >= _MAX_DISTANCE:
        return 0.0
    share = edit_distance(first, second) / longer
    return 1 - share if share < _MAX_DISTANCE else 0.0
