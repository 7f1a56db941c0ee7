"""Windows of a server's images."""

import numpy as np
import pytest

from app.drift.baseline import Baseline
from app.drift.monitor import Monitor, Watched
from tests.support.drift_samples import observations, sample


def watched() -> Watched:
    """A model with a baseline of made-up numbers."""
    return Watched("m", Baseline(sample=sample(100, embedded=False)), None)


class Clock:
    """Shows what it is set to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_window_is_judged_when_it_is_full_and_told_once() -> None:
    clock = Clock()
    monitor = Monitor(watched(), size=60, clock=clock)
    assert monitor.add(observations(59, 1, embedded=False), "") is None
    clock.now = 1060.0
    window = monitor.add(observations(1, 2, embedded=False, prefix="last"), "")
    assert window is not None
    assert (window.model, window.started, window.ended, window.comparison.production) == ("m", 1000, 1060, 60)
    assert not window.comparison.drifted
    assert not window.changed
    verdicts: list[tuple[bool, bool]] = []
    for shift in (2.0, 2.0, 0.0, 0.0):
        window = monitor.add(observations(60, 1, shift=shift, embedded=False), "")
        assert window is not None
        verdicts.append((window.comparison.drifted, window.changed))
    assert verdicts == [(True, True), (True, False), (False, True), (False, False)]


def test_time_ends_a_window_of_images_enough() -> None:
    clock, steady = Clock(), Clock()
    monitor = Monitor(watched(), size=1000, seconds=60, clock=clock, steady=steady)
    assert monitor.add(observations(10, 1, embedded=False), "") is None
    clock.now -= 1_000_000
    steady.now += 61
    assert monitor.add(observations(19, 2, embedded=False, prefix="b"), "") is None
    window = monitor.add(observations(1, 3, embedded=False, prefix="c"), "")
    assert window is not None
    assert window.comparison.production == 30


def test_similarity_is_told_of_what_was_measured_alone() -> None:
    model = watched()
    near, far = observations(1, 5, embedded=False), observations(1, 5, shift=10, embedded=False)
    (alike,), (strange,) = model.similarities(near), model.similarities(far)
    assert alike is not None
    assert strange is not None
    assert 0 <= strange < 0.05 < alike < 1
    blind = [type(near[0])(id="x")]
    assert model.similarities(blind) == [None]
    assert np.isfinite(alike)


@pytest.mark.parametrize("judged", [False, True])
def test_a_baseline_without_a_model_ignores_answers(judged: bool) -> None:
    monitor = Monitor(watched(), size=40)
    window = monitor.add(observations(40, 1, embedded=False, judged=judged), "OBJECT_DETECTION")
    assert window is not None
    assert [each.name for each in window.comparison.tests].count("chi-square") == 0
