"""Test that a Python model is not ready while calls to all its instances hang."""

import math
import threading
import time
from collections.abc import Iterator

import pytest

from app.core.runtimes.python.instances import InstancePool, ModelInstance
from tasks.inference.error import ErrorKind, InferenceError

HUNG_MESSAGE = "The model has not returned from a call of more than 0.05 s"


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    opened = threading.Event()
    yield opened
    opened.set()


def hang(instances: InstancePool, gate: threading.Event) -> None:
    with pytest.raises(InferenceError) as caught, instances.lease() as lease:
        lease.run(lambda _: gate.wait(60))
    assert caught.value.kind is ErrorKind.DEADLINE_EXCEEDED


def wait_for_trouble(instances: InstancePool, expected: str) -> None:
    for _ in range(1000):
        if instances.unavailable_reason == expected:
            return
        threading.Event().wait(0.01)
    assert instances.unavailable_reason == expected


def test_hung_call_is_reported_until_it_returns(gate: threading.Event) -> None:
    instances = InstancePool([ModelInstance("only")], 0.05, lambda _: None)
    assert instances.unavailable_reason == ""
    hang(instances, gate)
    wait_for_trouble(instances, HUNG_MESSAGE)
    with pytest.raises(InferenceError, match=HUNG_MESSAGE), instances.lease():
        pass
    gate.set()
    wait_for_trouble(instances, "")
    with instances.lease() as lease:
        assert lease.run(lambda _: 3) == 3
    instances.close()


def test_model_is_ready_while_one_instance_is_free_or_not_overdue() -> None:
    threads = [ModelInstance("one"), ModelInstance("other")]
    instances = InstancePool(threads, 0.05, lambda _: None)
    with instances.lease():
        for thread in threads:
            thread.due = 0.0
        assert instances.unavailable_reason == ""
        with instances.lease():
            assert instances.unavailable_reason == HUNG_MESSAGE
            threads[0].due = math.inf
            assert instances.unavailable_reason == ""
            # The call is late, but still within the time that its cancellation may take.
            threads[0].due = time.monotonic() - 0.1
            assert instances.unavailable_reason == ""
    instances.close()
