"""Test instances in their own threads: limits, waiting, and calls that never return."""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from app.core.runtimes.python.instances import InstancePool, ModelExited, ModelInstance
from tasks.inference.error import ErrorKind, InferenceError, invalid
from tests.support.polling import wait_until
from tests.support.pool_jobs import Gate

SHORT, LONG = 0.05, 30.0
HUNG = "The model has not returned from a call of more than 0.05 s"

Job = Callable[[Any], Any]


@pytest.fixture
def gate() -> Iterator[Gate]:
    fixture_gate = Gate()
    yield fixture_gate
    fixture_gate.open.set()


def identity(target: Any) -> Any:
    return target


def make_instances(
    count: int = 1, seconds: float = LONG, close: Job = identity
) -> tuple[InstancePool, list[ModelInstance]]:
    threads = [ModelInstance(f"model {number}") for number in range(count)]
    for number, thread in enumerate(threads):
        thread.target = number
    return InstancePool(threads, seconds, close), threads


def allow_time(instances: InstancePool) -> None:
    """Give later calls more time than SHORT, which a busy machine may need to change threads."""
    instances._seconds = LONG


def error_of_job(instances: InstancePool, job: Job = identity) -> InferenceError:
    with pytest.raises(InferenceError) as caught, instances.lease() as lease:
        lease.run(job)
    return caught.value


def run_job(instances: InstancePool, job: Job = identity) -> Any:
    with instances.lease() as lease:
        return lease.run(job)


def test_all_jobs_of_instance_run_in_one_thread() -> None:
    instances, (instance,) = make_instances()
    assert {run_job(instances, lambda _: threading.current_thread().name) for _ in range(3)} == {"model 0"}
    assert instance.thread.daemon


def test_coroutines_of_instance_run_in_one_event_loop() -> None:
    async def loop(_: object) -> int:
        await asyncio.sleep(0)
        return id(asyncio.get_running_loop())

    instances, _ = make_instances()
    assert run_job(instances, loop) == run_job(instances, loop)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt("stop"), GeneratorExit(), ModelExited("x")])
def test_exit_exceptions_are_model_failures(error: BaseException) -> None:
    def stop(_: object) -> None:
        raise error

    instances, _ = make_instances()
    found = error_of_job(instances, stop)
    assert found.kind is ErrorKind.MODEL_FAILED
    assert str(found).startswith("The model failed: ")
    assert run_job(instances) == 0


def test_system_exit_in_coroutine_keeps_event_loop_running() -> None:
    async def stop(_: object) -> None:
        raise SystemExit(3)

    async def go_on(_: object) -> str:
        await asyncio.sleep(0)
        return "on"

    instances, _ = make_instances()
    assert str(error_of_job(instances, stop)) == "The model failed: SystemExit: 3"
    assert run_job(instances, go_on) == "on"


class Mute(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "text", "length"),
    [
        (TimeoutError("of its own"), "TimeoutError: of its own", 50),
        (ValueError("x" * 10**6), "ValueError: xxx", 500),
        (ValueError("\ud800"), "ValueError: ?", 50),
        (Mute(), "Mute", 60),
    ],
    ids=["plain", "long", "not unicode", "without text"],
)
def test_job_exception_is_reported_with_its_class_and_shortened(error: Exception, text: str, length: int) -> None:
    async def fail(_: object) -> None:
        raise error

    instances, _ = make_instances()
    found = error_of_job(instances, fail)
    assert (found.kind, found.__cause__) == (ErrorKind.MODEL_FAILED, error)
    assert str(found).startswith(f"The model failed: {text}")
    assert len(str(found).encode()) < length


def test_inference_error_of_model_is_passed_on_unchanged() -> None:
    error = invalid("Too dark")

    def fail(_: object) -> None:
        raise error

    instances, _ = make_instances()
    assert error_of_job(instances, fail) is error


def test_late_call_times_out_and_next_calls_fail_until_it_returns(gate: Gate) -> None:
    instances, (instance,) = make_instances(seconds=SHORT)
    late = error_of_job(instances, gate.block)
    assert (late.kind, str(late)) == (ErrorKind.DEADLINE_EXCEEDED, "The model did not answer within 0.05 s")
    rejected = error_of_job(instances)
    assert (rejected.kind, rejected.message) == (ErrorKind.MODEL_NOT_READY, HUNG)
    wait_until(lambda: instances.unavailable_reason == HUNG)
    gate.open.set()
    # This runs after the late call, and after its instance is returned.
    assert instance.run(lambda: "there", LONG) == "there"
    assert instances.unavailable_reason == ""
    allow_time(instances)
    assert run_job(instances) == 0


def test_model_is_ready_while_one_instance_is_free_or_not_overdue() -> None:
    instances, threads = make_instances(count=2, seconds=SHORT)
    with instances.lease():
        for thread in threads:
            thread.due = 0.0
        assert instances.unavailable_reason == ""
        with instances.lease():
            assert instances.unavailable_reason == HUNG
            threads[0].due = math.inf
            assert instances.unavailable_reason == ""
            # The call is late, but still within the time that its cancellation may take.
            threads[0].due = time.monotonic() - 0.1
            assert instances.unavailable_reason == ""


def test_late_coroutine_is_cancelled() -> None:
    cancelled = threading.Event()

    async def never(_: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    instances, (instance,) = make_instances(seconds=SHORT)
    assert error_of_job(instances, never).kind is ErrorKind.DEADLINE_EXCEEDED
    assert cancelled.wait(LONG)
    assert instance.run(lambda: "there", LONG) == "there"
    allow_time(instances)
    assert run_job(instances) == 0


def test_other_instances_answer_while_one_hangs(gate: Gate) -> None:
    instances, _ = make_instances(count=2, seconds=SHORT)
    error_of_job(instances, gate.block)
    allow_time(instances)
    assert run_job(instances) == run_job(instances)


def test_call_that_waits_for_a_hung_instance_is_rejected(gate: Gate) -> None:
    instances, _ = make_instances(seconds=SHORT)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(error_of_job, instances, gate.block)
        gate.wait_started(1)
        assert error_of_job(instances).message == HUNG
        assert first.result(LONG).kind is ErrorKind.DEADLINE_EXCEEDED


def test_wait_for_leased_instance_has_timeout() -> None:
    instances, _ = make_instances(seconds=SHORT)
    allow_time(instances)
    with instances.lease() as lease:
        lease.run(lambda target: target)
        assert error_of_job(instances).kind is ErrorKind.OVERLOADED
    assert run_job(instances) == 0


def test_number_of_waiting_calls_is_limited() -> None:
    instances, _ = make_instances()
    rejected = threading.Event()

    def ask() -> Any:
        try:
            return run_job(instances)
        except InferenceError as error:
            rejected.set()
            return str(error)

    with ThreadPoolExecutor(33) as pool:
        with instances.lease():
            answers = [pool.submit(ask) for _ in range(33)]
            assert rejected.wait(LONG)
        found = [answer.result(LONG) for answer in answers]
    assert found.count(0) == 32
    assert "32 requests already wait for the model; try again later" in found


def test_instances_answer_concurrently() -> None:
    instances, _ = make_instances(count=2)
    barrier = threading.Barrier(2, timeout=LONG)
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(run_job, instances, lambda _: barrier.wait()) for _ in "ab"]
    assert sorted(answer.result() for answer in answers) == [0, 1]


def test_instances_are_closed_in_their_threads_after_current_call(gate: Gate) -> None:
    messages: list[str] = []

    def close(target: object) -> None:
        messages.append(f"{threading.current_thread().name} closed {target}, open: {gate.open.is_set()}")

    instances, _ = make_instances(count=2, close=close)
    first = threading.Thread(target=lambda: run_job(instances, gate.block))
    first.start()
    gate.wait_started(1)
    instances.close()
    instances.close()
    assert str(error_of_job(instances)) == "The model was unloaded"
    gate.open.set()
    instances.join(LONG)
    first.join(LONG)
    assert sorted(message[:16] for message in messages) == ["model 0 closed 0", "model 1 closed 1"]
    assert "model 1 closed 1, open: True" in messages


def test_failing_async_close_still_ends_threads() -> None:
    async def close(target: int) -> None:
        await asyncio.sleep(0)
        raise RuntimeError(target)

    instances, threads = make_instances(count=2, close=close)
    instances.close()
    instances.join(LONG)
    assert not any(instance.thread.is_alive() for instance in threads)


def test_waiting_call_is_rejected_when_model_is_unloaded() -> None:
    instances, _ = make_instances()
    with instances.lease():
        errors: list[InferenceError] = []
        second = threading.Thread(target=lambda: errors.append(error_of_job(instances)))
        second.start()
        instances.close()
        second.join(LONG)
    assert errors[0].kind is ErrorKind.MODEL_NOT_READY
