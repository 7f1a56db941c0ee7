"""Wait for a condition, instead of for a time."""

import asyncio
import threading
import time
from collections.abc import Callable

__all__ = ("wait_until", "wait_until_async")

_LATE = "the condition does not hold after {:g} s"


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Poll until `condition` holds.

    Args:
        condition: is called often.
        seconds: after which the test fails.
    """
    pause, deadline = threading.Event(), time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, _LATE.format(seconds)
        pause.wait(0.02)


async def wait_until_async(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Poll until `condition` holds, while the event loop goes on.

    Args:
        condition: is called often.
        seconds: after which the test fails.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, _LATE.format(seconds)
        await asyncio.sleep(0.001)
