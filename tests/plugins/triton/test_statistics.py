"""Statistics of inferences."""

import threading
from typing import Any

import msgspec
import pytest

from app.core.engine.request_context import RequestContext
from app.plugins.triton.statistics import ModelStatistics, Statistics
from tasks.inference.error import ErrorKind

EVENT = RequestContext(
    protocol="kserve-v2", request_id="1", model_name="m", model_version="1", batch_size=4, queue=10, total=100,
    decode_ns=20, model_ns=30, postprocess_ns=5,
)  # fmt: skip


@pytest.fixture
def statistics() -> Statistics:
    return Statistics()


def test_success_counts_every_item_and_one_execution(statistics: Statistics) -> None:
    statistics.observe(EVENT)
    statistics.observe(msgspec.structs.replace(EVENT, batch_size=1))
    statistics.observe(msgspec.structs.replace(EVENT, batch_size=4, total=300))
    counts = statistics.for_model("m", "1")
    assert (counts.inference_count, counts.execution_count) == (9, 3)
    assert (counts.success.count, counts.success.ns) == (3, 500)
    steps = (counts.queue, counts.compute_input, counts.compute_infer, counts.compute_output)
    assert [step.ns for step in steps] == [30, 60, 90, 15]
    assert {size: batch.compute_infer.count for size, batch in counts.batches.items()} == {4: 2, 1: 1}
    assert counts.fail.count == 0
    assert counts.last_inference > 0


@pytest.mark.parametrize(
    "changes", [{"explanation": True}, {"model_version": "", "outcome": ErrorKind.MODEL_NOT_FOUND}], ids=str
)
def test_explanation_and_unknown_model_are_not_counted(statistics: Statistics, changes: dict[str, Any]) -> None:
    event = msgspec.structs.replace(EVENT, **changes)
    statistics.observe(event)
    assert statistics.for_model("m", event.model_version) == ModelStatistics()


def test_statistics_are_returned_as_a_copy(statistics: Statistics) -> None:
    statistics.observe(EVENT)
    statistics.for_model("m", "1").batches[4].compute_infer.add(1000)
    assert statistics.for_model("m", "1").batches[4].compute_infer.ns == 30


def test_concurrent_observations_are_all_counted(statistics: Statistics) -> None:
    def observe() -> None:
        for _ in range(500):
            statistics.observe(EVENT)

    threads = [threading.Thread(target=observe) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = statistics.for_model("m", "1")
    assert (counts.execution_count, counts.inference_count, counts.success.ns) == (2000, 8000, 200_000)
