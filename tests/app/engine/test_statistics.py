"""What is counted of every inference."""

import threading

import msgspec
import pytest

from app.engine.answered import Timings
from app.engine.events import InferenceEvent, RequestInfo
from app.engine.statistics import ModelStatistics, Statistics
from tasks.exchange.error import ErrorKind

EVENT = InferenceEvent(
    caller=RequestInfo(protocol="kserve-v2", request_id="1"),
    model_name="m",
    model_version="1",
    outcome=None,
    error="",
    batch_size=4,
    queue=10,
    total=100,
    timings=Timings(decode=20, model=30, refine=5),
    metadata=(),
)


@pytest.fixture
def statistics() -> Statistics:
    return Statistics()


def test_a_model_that_was_never_asked(statistics: Statistics) -> None:
    assert statistics.of("m", "1") == ModelStatistics()


def test_an_answer_counts_each_item_and_one_execution(statistics: Statistics) -> None:
    statistics.observe(EVENT)
    statistics.observe(msgspec.structs.replace(EVENT, batch_size=1))
    statistics.observe(msgspec.structs.replace(EVENT, batch_size=4, total=300))
    found = statistics.of("m", "1")
    assert (found.inference_count, found.execution_count) == (9, 3)
    assert (found.success.count, found.success.ns) == (3, 500)
    assert (found.queue.ns, found.compute_input.ns, found.compute_infer.ns, found.compute_output.ns) == (30, 60, 90, 15)
    assert {size: batch.compute_infer.count for size, batch in found.batches.items()} == {4: 2, 1: 1}
    assert found.fail.count == 0
    assert found.last_inference > 0


def test_a_refusal_counts_as_a_failure_only(statistics: Statistics) -> None:
    statistics.observe(msgspec.structs.replace(EVENT, outcome=ErrorKind.INVALID_REQUEST, total=7))
    found = statistics.of("m", "1")
    assert (found.fail.count, found.fail.ns) == (1, 7)
    assert msgspec.structs.replace(found, fail=ModelStatistics().fail) == ModelStatistics()


def test_versions_are_counted_apart_and_no_version_not_at_all(statistics: Statistics) -> None:
    statistics.observe(msgspec.structs.replace(EVENT, model_version="2"))
    statistics.observe(msgspec.structs.replace(EVENT, model_version="", outcome=ErrorKind.MODEL_NOT_FOUND))
    assert statistics.of("m", "1").execution_count == 0
    assert statistics.of("m", "2").execution_count == 1
    assert statistics.of("m", "") == ModelStatistics()


def test_what_is_given_is_a_copy(statistics: Statistics) -> None:
    statistics.observe(EVENT)
    statistics.of("m", "1").batches[4].compute_infer.add(1000)
    assert statistics.of("m", "1").batches[4].compute_infer.ns == 30


def test_nothing_is_lost_between_threads(statistics: Statistics) -> None:
    def observe() -> None:
        for _ in range(500):
            statistics.observe(EVENT)

    threads = [threading.Thread(target=observe) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    found = statistics.of("m", "1")
    assert (found.execution_count, found.inference_count, found.success.ns) == (2000, 8000, 200_000)
