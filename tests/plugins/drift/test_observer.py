"""Drift detection during inference, and windows of monitored images."""

import queue
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from app.core.engine.request_context import RequestContext
from app.plugins.drift.baseline import Baseline
from app.plugins.drift.measurement import DriftInput, measure_images
from app.plugins.drift.monitor import DriftMetrics, DriftWindow, ModelMonitor
from app.plugins.drift.observer import DriftObserver
from app.plugins.drift.sample import Observation, build_sample
from tasks.image_classification import Classification, ClassificationInput
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceOutput, InferenceResult, SampleResult
from tasks.inference.tensor import BytesTensor
from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image
from tests.support.data.drift_samples import observations, sample
from tests.support.data.inference_events import event
from tests.support.polling import wait_until

PREDICTION = Classification(labels=["red"], scores=np.array([0.5], np.float32))


def image(seed: int, light: int = 100) -> Image:
    """Return noise around a brightness."""
    return Image(np.random.default_rng(seed).integers(light - 20, light + 20, (16, 16, 3)).astype(np.uint8))


def new_monitor(seen: Sequence[DriftInput], size: int = 40, task_type: str = "") -> ModelMonitor:
    """Return the monitor of a model with a baseline of these images."""
    baseline = Baseline(sample=build_sample(measure_images(seen, task_type, None), task_type))
    return ModelMonitor("m", baseline, None, size)


def usual_images() -> Sequence[DriftInput]:
    return [DriftInput(id=str(seed), image=image(seed)) for seed in range(60)]


def result_of(*images: Image) -> InferenceResult:
    items = [ClassificationInput(photo, SelectionParameters()) for photo in images]
    data = [SampleResult(input=n, index=0, item=item, prediction=PREDICTION) for n, item in enumerate(items)]
    outputs = [InferenceOutput(name="o", predictions=[PREDICTION]) for _ in images]
    return InferenceResult(outputs=outputs, batch_size=len(images), samples=data)


def event_of(result: InferenceResult, seed: int, **changes: Any) -> RequestContext:
    fields = {"result": result, "task_type": "IMAGE_CLASSIFICATION", "id": f"event{seed}", **changes}
    return msgspec.structs.replace(event(), **fields)


def inference_request(metadata: str) -> InferenceRequest:
    tensor = BytesTensor(name="i", shape=(1,), elements=[], parameters={"metadata": metadata})
    return InferenceRequest(id="", model_name="m", inputs=(tensor,))


class RunningWatch:
    def __init__(self, monitor: ModelMonitor | None = None, per_second: float = 1e6, **options: Any) -> None:
        self.seen = 0
        self.registry = CollectorRegistry()
        monitors = {"m": monitor or new_monitor(usual_images())}
        self.watch = DriftObserver(monitors, DriftMetrics(self.registry), per_second, **options)

    def next_window(self) -> DriftWindow:
        """Wait for the next window."""
        self.seen += 1
        wait_until(lambda: len(self.watch.windows().get("m", ())) >= self.seen)
        return self.watch.windows()["m"][self.seen - 1]

    @property
    def metrics(self) -> str:
        return generate_latest(self.registry).decode()


def test_drifted_window_is_reported_in_metrics() -> None:
    running = RunningWatch()
    images = [image(seed, light=180) for seed in range(40)]
    running.watch.observe(event_of(result_of(*images), 1))
    window = running.next_window()
    running.watch.close()
    assert window.drifted
    assert [summary.drifted for summary in running.watch.windows()["m"]] == [True]
    for line in (
        'detected{model="m"} 1.0', 'images_total{model="m",outcome="measured"} 40.0', 'windows_total{model="m"} 1.0',
        'p{model="m",test="Kolmogorov-Smirnov"}',
    ):  # fmt: skip
        assert f"charioteer_drift_{line}" in running.metrics


def test_inferences_of_other_kinds_are_ignored() -> None:
    running = RunningWatch()
    others: Sequence[dict[str, Any]] = ({"model_name": "missing"}, {"explanation": True}, {"trial": True})
    for other in (*others, {"result": None}, {"similarities": [0.5]}):
        running.watch.observe(msgspec.structs.replace(event_of(result_of(image(1)), 1), **other))
    running.watch.close()
    counts = re.findall(r"^charioteer_drift_images_total\{.*\} (.*)", running.metrics, re.MULTILINE)
    assert counts == ["0.0"] * 4


@pytest.mark.parametrize(
    ("side", "per_second", "outcome", "least", "most"), [(16, 2, "skipped", 5, 8), (8000, 1e6, "dropped", 5, 10)]
)
def test_images_above_rate_or_memory_limit_are_counted(
    side: int, per_second: float, outcome: str, least: int, most: int
) -> None:
    running = RunningWatch(per_second=per_second)
    photo = Image(np.zeros((side, side, 3), np.uint8))
    for seed in range(10):
        running.watch.observe(event_of(result_of(photo), seed))
    running.watch.close()
    counted = next(line for line in running.metrics.splitlines() if f'outcome="{outcome}"' in line)
    assert least <= float(counted.split()[-1]) <= most


def test_similarity_is_output_parameter_and_response_header() -> None:
    running = RunningWatch()
    info = RequestContext(protocol="p", request_id="r")
    result = result_of(image(1000), image(1001, light=200))
    near, far = running.watch.annotate(info, result, "m")
    assert isinstance(near["similarity"], float)
    assert isinstance(far["similarity"], float)
    assert near["similarity"] > 0.1 > far["similarity"]
    assert info.similarities == [near["similarity"], far["similarity"]]
    assert info.response_headers["charioteer-similarity"] == f"{near['similarity']:g},{far['similarity']:g}"
    assert running.watch.annotate(info, result, "missing") == ()
    assert running.watch.annotate(info, result_of(), "m") == ()
    joined = msgspec.structs.replace(result, outputs=[InferenceOutput(name="o", predictions=[PREDICTION] * 2)])
    assert running.watch.annotate(info, joined, "m") == [{"similarity": [near["similarity"], far["similarity"]]}]
    running.watch.close()


@pytest.mark.parametrize("annotated", [False, True])
def test_new_and_vanished_cameras_are_reported(annotated: bool, caplog: pytest.LogCaptureFixture) -> None:
    cameras = [{"camera": ("north", "west")[seed % 2]} for seed in range(60)]
    seen = [DriftInput(id=str(seed), image=image(seed), metadata=entry) for seed, entry in enumerate(cameras)]
    running = RunningWatch(new_monitor(seen))
    for seed in range(100, 140):
        camera = ("north", "lobby")[seed % 2]
        entries = f'[{{"key": "camera", "type": "str", "value": "{camera}"}}, {{"key": "other", "value": "{seed}"}}]'
        request = inference_request(entries)
        result = result_of(image(seed))
        if annotated:
            running.watch.annotate(RequestContext(protocol="p", request_id="r", request=request), result, "m")
        else:
            running.watch.observe(event_of(result, seed, request=request))
    window = running.next_window()
    running.watch.close()
    drifted = [(test.name, test.where) for test in window.tests if test.drifted]
    assert drifted == [("mix", "camera: new lobby; gone west")]
    assert "m has drifted: mix camera: new lobby; gone west" in caplog.text


def test_unmeasurable_image_does_not_lose_the_window() -> None:
    nan = Classification(labels=["red"], scores=np.array([np.nan], np.float32))
    unmeasurable = result_of(image(1))
    samples = [msgspec.structs.replace(datum, prediction=nan) for datum in unmeasurable.samples]
    unmeasurable = msgspec.structs.replace(unmeasurable, samples=samples)
    seen = [DriftInput(id=str(seed), image=image(seed), records=[{"label": "red", "score": 0.5}]) for seed in range(60)]
    running = RunningWatch(new_monitor(seen, task_type="IMAGE_CLASSIFICATION"))
    running.watch.observe(event_of(unmeasurable, 0))
    running.watch.observe(event_of(result_of(*[image(seed, light=180) for seed in range(40)]), 1))
    assert running.next_window().images == 40
    running.watch.close()
    assert 'charioteer_drift_images_total{model="m",outcome="failed"} 1.0' in running.metrics


def test_changed_baseline_is_used_and_removed_baseline_is_dropped() -> None:
    changes: queue.Queue[dict[str, ModelMonitor | None]] = queue.Queue()

    def poll_changes() -> dict[str, ModelMonitor | None]:
        return changes.get() if changes.qsize() else {}

    drifted = [image(seed, light=180) for seed in range(40)]
    running = RunningWatch(poll_monitors=poll_changes, poll_seconds=0.01)
    running.watch.observe(event_of(result_of(*drifted), 1))
    assert running.next_window().drifted
    seen = [DriftInput(id=str(seed), image=image(seed, light=180)) for seed in range(100, 160)]
    changes.put({"m": new_monitor(seen)})
    wait_until(lambda: not changes.qsize() and "charioteer_drift_detected{" not in running.metrics)
    running.watch.observe(event_of(result_of(*drifted), 2))
    assert not running.next_window().drifted
    assert len(running.watch.windows()["m"]) == 2
    changes.put({"m": None})
    wait_until(lambda: "charioteer_drift_detected{" not in running.metrics and not running.watch.windows())
    running.watch.close()


def numbers_monitor(size: int, **options: Any) -> ModelMonitor:
    """Return the monitor of a model with a baseline of synthetic numbers."""
    return ModelMonitor("m", Baseline(sample=sample(100, with_embeddings=False)), None, size, **options)


def numbers_seen(count: int, seed: int, **options: Any) -> list[Observation]:
    return observations(count, seed, with_embeddings=False, **options)


class Clock:
    """Return the time that it is set to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_full_window_is_judged_and_a_change_is_reported_once() -> None:
    clock = Clock()
    monitor = numbers_monitor(60, clock=clock)
    assert monitor.add(numbers_seen(59, 1), "") is None
    clock.now = 1060.0
    tested = monitor.add(numbers_seen(1, 2, prefix="last"), "")
    assert tested is not None
    window, changed = tested
    assert (window.model, window.started, window.ended, window.images) == ("m", 1000, 1060, 60)
    assert not window.drifted
    assert not changed
    verdicts: list[tuple[bool, bool]] = []
    for shift in (2.0, 2.0, 0.0, 0.0):
        tested = monitor.add(numbers_seen(60, 1, shift=shift), "")
        assert tested is not None
        verdicts.append((tested[0].drifted, tested[1]))
    assert verdicts == [(True, True), (True, False), (False, True), (False, False)]


def test_time_limit_ends_a_window_with_enough_images() -> None:
    clock, steady = Clock(), Clock()
    monitor = numbers_monitor(1000, seconds=60, clock=clock, monotonic=steady)
    assert monitor.add(numbers_seen(10, 1), "") is None
    clock.now -= 1_000_000
    steady.now += 61
    assert monitor.add(numbers_seen(19, 2, prefix="b"), "") is None
    tested = monitor.add(numbers_seen(1, 3, prefix="c"), "")
    assert tested is not None
    assert tested[0].images == 30


def test_similarity_is_none_without_measurements() -> None:
    model = numbers_monitor(40)
    near, far = numbers_seen(1, 5), numbers_seen(1, 5, shift=10)
    *similarities, unmeasured = map(model.similarity, [*near, *far, Observation(id="x")])
    close, distant = (-1.0 if similarity is None else similarity for similarity in similarities)
    assert 0 <= distant < 0.05 < close < 1
    assert unmeasured is None


def test_baseline_without_model_ignores_answers() -> None:
    monitor = numbers_monitor(40)
    tested = monitor.add(numbers_seen(40, 1, with_predictions=True), "OBJECT_DETECTION")
    assert tested is not None
    assert [test.name for test in tested[0].tests].count("chi-square") == 0
