"""Objects in threads of their own: limits, waiting, and calls that never return."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.runtimes.python.instances import Gone, Instance, Instances, LateError
from tasks.exchange.error import ErrorKind, InferenceError, invalid

SHORT, LONG = 0.05, 30.0

Job = Callable[[Any], Any]


class Gates:
    """Doors for jobs to wait at; all are open at the end, so that no thread is left waiting."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()

    def wait(self, target: object = None) -> str:
        self.reached.set()
        self.open.wait()
        return "through"


@pytest.fixture
def gates() -> Iterator[Gates]:
    made = Gates()
    yield made
    made.open.set()


def itself(target: Any) -> Any:
    return target


def made(count: int = 1, seconds: float = LONG, close: Job = itself) -> tuple[Instances, list[Instance]]:
    threads = [Instance(f"model {number}") for number in range(count)]
    for number, each in enumerate(threads):
        each.target = number
    return Instances(threads, seconds, close), threads


def refusal(instances: Instances, job: Job = itself) -> InferenceError:
    with pytest.raises(InferenceError) as caught, instances.lease() as lease:
        lease.run(job)
    return caught.value


def asked(instances: Instances, job: Job = itself) -> Any:
    with instances.lease() as lease:
        return lease.run(job)


def test_all_jobs_of_an_object_run_in_its_one_thread() -> None:
    instances, (instance,) = made()
    assert {asked(instances, lambda _: threading.current_thread().name) for _ in range(3)} == {"model 0"}
    assert instance.thread.daemon


def test_coroutines_run_in_one_event_loop_of_the_object() -> None:
    async def loop(_: object) -> int:
        await asyncio.sleep(0)
        return id(asyncio.get_running_loop())

    instances, _ = made()
    assert asked(instances, loop) == asked(instances, loop)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt("stop"), GeneratorExit(), Gone("x")])
def test_orders_to_stop_are_failures(error: BaseException) -> None:
    def stop(_: object) -> None:
        raise error

    instances, _ = made()
    found = refusal(instances, stop)
    assert found.kind is ErrorKind.MODEL_FAILED
    assert str(found).startswith("The model failed: ")
    assert asked(instances) == 0


def test_what_a_job_raises_is_told_with_its_class() -> None:
    def fail(_: object) -> None:
        raise TimeoutError("of its own")

    instances, _ = made()
    found = refusal(instances, fail)
    assert (found.kind, str(found)) == (ErrorKind.MODEL_FAILED, "The model failed: TimeoutError: of its own")
    assert isinstance(found.__cause__, TimeoutError)


def test_orders_to_stop_from_a_coroutine_leave_the_loop_as_it_was() -> None:
    async def stop(_: object) -> None:
        raise SystemExit(3)

    async def go_on(_: object) -> str:
        await asyncio.sleep(0)
        return "on"

    instances, _ = made()
    assert str(refusal(instances, stop)) == "The model failed: SystemExit: 3"
    assert asked(instances, go_on) == "on"


@pytest.mark.parametrize(("text", "length"), [("x" * 10**6, 500), ("\ud800", 50)])
def test_what_a_job_raises_is_told_in_a_line(text: str, length: int) -> None:
    def fail(_: object) -> None:
        raise ValueError(text)

    instances, _ = made()
    assert len(str(refusal(instances, fail)).encode()) < length


def test_an_error_that_cannot_be_told_is_a_failure_all_the_same() -> None:
    class Mute(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise RuntimeError

    def fail(_: object) -> None:
        raise Mute

    instances, _ = made()
    assert str(refusal(instances, fail)) == "The model failed: Mute: (its text cannot be read)"


def test_a_refusal_by_the_model_is_passed_on_as_it_is() -> None:
    refused = invalid("Too dark")

    def refuse(_: object) -> None:
        raise refused

    instances, _ = made()
    assert refusal(instances, refuse) is refused


def test_a_call_that_takes_too_long_is_given_up_and_the_next_refused_until_it_returns(gates: Gates) -> None:
    instances, (instance,) = made(seconds=SHORT)
    late = refusal(instances, gates.wait)
    assert (late.kind, str(late)) == (ErrorKind.DEADLINE_EXCEEDED, "The model did not answer within 0.05 s")
    refused = refusal(instances)
    assert refused.kind is ErrorKind.MODEL_NOT_READY
    assert "has not returned from a call" in str(refused)
    gates.open.set()
    # Behind the late call, and behind its object being given back.
    assert instance.run(lambda: "there", LONG) == "there"
    assert asked(instances) == 0


def test_a_coroutine_that_takes_too_long_is_cancelled() -> None:
    cancelled = threading.Event()

    async def never(_: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    instances, (instance,) = made(seconds=SHORT)
    assert refusal(instances, never).kind is ErrorKind.DEADLINE_EXCEEDED
    assert cancelled.wait(LONG)
    assert instance.run(lambda: "there", LONG) == "there"
    assert asked(instances) == 0


def test_one_that_hangs_leaves_the_others_to_answer(gates: Gates) -> None:
    instances, _ = made(count=2, seconds=SHORT)
    refusal(instances, gates.wait)
    assert asked(instances) == asked(instances)


def test_who_waits_behind_a_call_that_hangs_is_refused_when_it_is_late(gates: Gates) -> None:
    instances, _ = made(seconds=0.3)
    found: list[InferenceError] = []
    first = threading.Thread(target=lambda: found.append(refusal(instances, gates.wait)))
    first.start()
    assert gates.reached.wait(LONG)
    assert refusal(instances).kind in (ErrorKind.MODEL_NOT_READY, ErrorKind.OVERLOADED)
    first.join(LONG)
    assert found[0].kind is ErrorKind.DEADLINE_EXCEEDED


def test_a_call_waits_for_a_free_object(gates: Gates) -> None:
    instances, _ = made()
    found: list[Any] = []
    first = threading.Thread(target=lambda: found.append(asked(instances, gates.wait)))
    first.start()
    assert gates.reached.wait(LONG)
    second = threading.Thread(target=lambda: found.append(asked(instances)))
    second.start()
    gates.open.set()
    first.join(LONG)
    second.join(LONG)
    assert sorted(map(str, found)) == ["0", "through"]


def test_a_call_waits_only_so_long_for_an_object_that_another_keeps() -> None:
    instances, _ = made(seconds=SHORT)
    with instances.lease() as lease:
        lease.run(lambda target: target)
        assert refusal(instances).kind is ErrorKind.OVERLOADED
    assert asked(instances) == 0


def test_only_so_many_calls_wait_for_an_object() -> None:
    instances, _ = made()
    found: list[Any] = []
    refused = threading.Event()

    def ask() -> None:
        try:
            found.append(asked(instances))
        except InferenceError as error:
            found.append(str(error))
            refused.set()

    threads = [threading.Thread(target=ask) for _ in range(33)]
    with instances.lease():
        for each in threads:
            each.start()
        assert refused.wait(LONG)
    for each in threads:
        each.join(LONG)
    assert found.count(0) == 32
    assert "32 requests already wait for the model; try again later" in found


def test_several_objects_answer_at_once() -> None:
    instances, _ = made(count=2)
    meeting = threading.Barrier(2, timeout=LONG)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(asked(instances, lambda _: meeting.wait()))) for _ in "ab"]
    for each in threads:
        each.start()
    for each in threads:
        each.join(LONG)
    assert sorted(found) == [0, 1]


def test_objects_are_closed_in_their_threads_behind_the_call_that_they_are_at(gates: Gates) -> None:
    told: list[str] = []

    def close(target: object) -> None:
        told.append(f"{threading.current_thread().name} closed {target}, open: {gates.open.is_set()}")

    instances, _ = made(count=2, close=close)
    first = threading.Thread(target=lambda: asked(instances, gates.wait))
    first.start()
    assert gates.reached.wait(LONG)
    instances.close()
    instances.close()
    assert str(refusal(instances)) == "The model was unloaded"
    gates.open.set()
    instances.join(LONG)
    first.join(LONG)
    assert sorted(each[:16] for each in told) == ["model 0 closed 0", "model 1 closed 1"]
    assert "model 1 closed 1, open: True" in told


def test_a_close_that_fails_or_waits_is_let_be() -> None:
    async def close(target: int) -> None:
        await asyncio.sleep(0)
        raise RuntimeError(target)

    instances, threads = made(count=2, close=close)
    instances.close()
    instances.join(LONG)
    assert not any(each.thread.is_alive() for each in threads)


def test_who_waits_is_told_when_the_model_is_unloaded() -> None:
    instances, _ = made()
    with instances.lease():
        waiting: list[InferenceError] = []
        second = threading.Thread(target=lambda: waiting.append(refusal(instances)))
        second.start()
        instances.close()
        second.join(LONG)
    assert waiting[0].kind is ErrorKind.MODEL_NOT_READY


def test_nothing_is_waited_for_beyond_its_time(gates: Gates) -> None:
    instance = Instance("model")
    with pytest.raises(LateError):
        instance.run(gates.wait, SHORT)
