"""The comparison of both answers with a truth."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from app.plugins.recording.inference import RecordedImage, Truth
from app.plugins.shadow.report import judge
from app.plugins.shadow.rows import ShadowRow
from tests.support.data.recorded_rows import recorded_inference

Records = Sequence[dict[str, object]]


def _box(label: str, left: float, score: float | None = None) -> dict[str, object]:
    scores = {} if score is None else {"score": score}
    return {"label": label, **scores, "xmin": left, "ymin": 0.0, "xmax": left + 10, "ymax": 10.0}


def _judged(truth: Truth | None, before: Records, after: Records, task: str = "OBJECT_DETECTION") -> Any:
    """Return what champion and shadow version find; None if that cannot be compared with the truth."""
    records = msgspec.json.encode(after).decode()
    row = ShadowRow(id="a-0-0", version="2", model="m", champion="1", time=1, agreed=True, records=records)
    image = RecordedImage(digest="d", width=100, height=100, size=1)
    judged = judge(row, recorded_inference("a-0-0", task_type=task, records=before, image=image, truth=truth))
    return judged and (judged.champion, judged.shadow)


def test_objects_are_matched_with_those_of_the_truth() -> None:
    truth = Truth(verdict="wrong", records=[_box("cat", 0), _box("cat", 50), _box("dog", 80)], complete=True)
    before = [_box("cat", 0, 0.9), _box("cat", 1, 0.8), _box("emu", 80, 0.7)]
    after = [_box("cat", 0, 0.5), _box("cat", 51, 0.9), _box("dog", 80, 0.6)]
    champion, shadow = _judged(truth, before, after)
    assert champion == {"cat": (1, 1, 1), "dog": (0, 0, 1), "emu": (0, 1, 0)}
    assert shadow == {"cat": (2, 0, 0), "dog": (1, 0, 0)}


def test_verdict_alone_makes_a_right_answer_the_truth() -> None:
    before: Records = [{"label": "cat", "score": 0.9}, {"label": "dog", "score": 0.1}]
    after: Records = [{"label": "dog", "score": 0.6}, {"label": "cat", "score": 0.4}]
    task = "IMAGE_CLASSIFICATION"
    champion, shadow = _judged(Truth(verdict="right"), before, after, task)
    assert champion == {"cat": (1, 0, 0)}
    assert shadow == {"cat": (0, 0, 1), "dog": (0, 1, 0)}
    assert _judged(Truth(verdict="wrong"), before, after, task) is None
    assert _judged(None, before, after, task) is None
    # Neither does an incomplete one decide.
    assert _judged(Truth(verdict="wrong", records=[_box("cat", 0)]), [], []) is None


def test_redacted_answers_cannot_be_compared() -> None:
    truth = Truth(verdict="wrong", records=[_box("cat", 0)], complete=True)
    with pytest.raises(ValueError, match="score: Expected a finite number"):
        _judged(truth, [{**_box("cat", 0), "score": "[redacted]"}], [])
