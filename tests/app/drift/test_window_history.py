"""History of the judged windows."""

import math

from app.drift import result
from app.drift.monitor import DriftWindow
from app.drift.window_history import WindowHistory


def window(model: str, ended: float, *, p: float = 0.5, similarity: float = 0.4) -> DriftWindow:
    tests = [result.DriftTestResult(name="tails", about="", p=p / 2, adjusted=p, drifted=p <= 0.01)]
    comparison = result.DriftComparison(
        drifted=p <= 0.01,
        alpha=0.01,
        baseline=100,
        production=30,
        tests=tests,
        numbers=(),
        labels=(),
        slices=(),
        baseline_similarity=0.5,
        production_similarity=similarity,
        outliers=(),
        notes=(),
    )
    return DriftWindow(model=model, started=0.0, ended=ended, comparison=comparison, changed=False)


def test_window_is_stored_with_its_verdict() -> None:
    history = WindowHistory()
    history.add(window("detector", 10.0, p=0.001))
    (judged,) = history.windows()["detector"]
    assert (judged.ended, judged.images, judged.drifted, judged.alpha) == (10.0, 30, True, 0.01)
    assert (judged.similarity, judged.baseline_similarity) == (0.4, 0.5)
    assert judged.tests == {"tails": 0.001}


def test_only_latest_windows_of_each_model_are_kept() -> None:
    history = WindowHistory(max_windows=2)
    for ended in (1.0, 2.0, 3.0):
        history.add(window("detector", ended))
    history.add(window("another", 9.0))
    assert {name: [judged.ended for judged in windows] for name, windows in history.windows().items()} == {
        "another": [9.0],
        "detector": [2.0, 3.0],
    }
    assert list(history.windows()) == ["another", "detector"]


def test_unknown_similarity_is_none() -> None:
    history = WindowHistory()
    history.add(window("detector", 1.0, similarity=math.nan))
    assert history.windows()["detector"][0].similarity is None
