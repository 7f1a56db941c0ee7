"""Windows of monitored images."""

from typing import Any

from app.plugins.drift.baseline import Baseline
from app.plugins.drift.monitor import Monitor
from app.plugins.drift.sample import Observation
from tests.support.data.drift_samples import observations, sample


def new_monitor(size: int, **options: Any) -> Monitor:
    """Return the monitor of a model with a baseline of synthetic numbers."""
    return Monitor("m", Baseline(sample=sample(100, with_embeddings=False)), None, size, **options)


def seen(count: int, seed: int, **options: Any) -> list[Observation]:
    return observations(count, seed, with_embeddings=False, **options)


class Clock:
    """Return the time that it is set to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_full_window_is_judged_and_a_change_is_reported_once() -> None:
    clock = Clock()
    monitor = new_monitor(60, clock=clock)
    assert monitor.add(seen(59, 1), "") is None
    clock.now = 1060.0
    tested = monitor.add(seen(1, 2, prefix="last"), "")
    assert tested is not None
    window, changed = tested
    assert (window.model, window.started, window.ended, window.images) == ("m", 1000, 1060, 60)
    assert not window.drifted
    assert not changed
    verdicts: list[tuple[bool, bool]] = []
    for shift in (2.0, 2.0, 0.0, 0.0):
        tested = monitor.add(seen(60, 1, shift=shift), "")
        assert tested is not None
        verdicts.append((tested[0].drifted, tested[1]))
    assert verdicts == [(True, True), (True, False), (False, True), (False, False)]


def test_time_limit_ends_a_window_with_enough_images() -> None:
    clock, steady = Clock(), Clock()
    monitor = new_monitor(1000, seconds=60, clock=clock, monotonic=steady)
    assert monitor.add(seen(10, 1), "") is None
    clock.now -= 1_000_000
    steady.now += 61
    assert monitor.add(seen(19, 2, prefix="b"), "") is None
    tested = monitor.add(seen(1, 3, prefix="c"), "")
    assert tested is not None
    assert tested[0].images == 30


def test_similarity_is_none_without_measurements() -> None:
    model = new_monitor(40)
    near, far = seen(1, 5), seen(1, 5, shift=10)
    *similarities, unmeasured = model.similarities([*near, *far, Observation(id="x")])
    close, distant = (-1.0 if similarity is None else similarity for similarity in similarities)
    assert 0 <= distant < 0.05 < close < 1
    assert unmeasured is None


def test_baseline_without_model_ignores_answers() -> None:
    monitor = new_monitor(40)
    tested = monitor.add(seen(40, 1, with_predictions=True), "OBJECT_DETECTION")
    assert tested is not None
    assert [test.name for test in tested[0].tests].count("chi-square") == 0
