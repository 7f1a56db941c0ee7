"""A Python model of which no object returns from its call is not ready."""

import math
import threading
import time
from collections.abc import Iterator

import pytest

from app.runtimes.python.instances import Instance, Instances
from tasks.exchange.error import ErrorKind, InferenceError

STUCK = "The model has not returned from a call of more than 0.05 s"


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    made = threading.Event()
    yield made
    made.set()


def hang(instances: Instances, gate: threading.Event) -> None:
    with pytest.raises(InferenceError) as caught, instances.lease() as lease:
        lease.run(lambda _: gate.wait(60))
    assert caught.value.kind is ErrorKind.DEADLINE_EXCEEDED


def eventually(instances: Instances, trouble: str) -> None:
    for _ in range(1000):
        if instances.trouble == trouble:
            return
        threading.Event().wait(0.01)
    assert instances.trouble == trouble


def test_it_says_so_until_it_returns_after_all(gate: threading.Event) -> None:
    instances = Instances([Instance("only")], 0.05, lambda _: None)
    assert instances.trouble == ""
    hang(instances, gate)
    eventually(instances, STUCK)
    with pytest.raises(InferenceError, match=STUCK), instances.lease():
        pass
    gate.set()
    eventually(instances, "")
    with instances.lease() as lease:
        assert lease.run(lambda _: 3) == 3
    instances.close()


def test_one_object_that_is_free_or_may_still_return_is_enough() -> None:
    threads = [Instance("one"), Instance("other")]
    instances = Instances(threads, 0.05, lambda _: None)
    with instances.lease():
        for each in threads:
            each.due = 0.0
        assert instances.trouble == ""
        with instances.lease():
            assert instances.trouble == STUCK
            threads[0].due = math.inf
            assert instances.trouble == ""
            # Late, but for no longer than cancelling it may take.
            threads[0].due = time.monotonic() - 0.1
            assert instances.trouble == ""
    instances.close()
