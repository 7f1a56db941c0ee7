"""Wait for a condition, instead of for a time."""

import asyncio
import threading
import time
from collections.abc import Callable

_TIMED_OUT = "the condition does not hold after {:g} s"


def wait_until(condition: Callable[[], bool], timeout: float = 60) -> None:
    """Poll until `condition` holds.

    Args:
        condition: is called often.
        timeout: after which the test fails.
    """
    never_set, deadline = threading.Event(), time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, _TIMED_OUT.format(timeout)
        never_set.wait(0.02)


async def wait_until_async(condition: Callable[[], bool], timeout: float = 60) -> None:
    """Poll until `condition` holds, while the event loop goes on.

    Args:
        condition: is called often.
        timeout: after which the test fails.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, _TIMED_OUT.format(timeout)
        await asyncio.sleep(0.001)
