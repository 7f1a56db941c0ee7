"""A stand-in for a server of Chariot's first protocol, whose answers a test chooses."""

import itertools
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager

from tests.support.servers.stand_in import Answer, Request, run_stand_in


@contextmanager
def fake_chariot(answer: Callable[[int, bytes], tuple[int, object]]) -> Generator[str]:
    """Yield the URL of a chariot-v2 server; `answer` returns status and JSON for a number and body.

    Clients that are refused may repeat their request at once.
    """
    numbers = itertools.count(1)

    def answer_request(request: Request) -> Answer:
        status, content = answer(next(numbers), request.body)
        return status, {"Retry-After": "0"}, json.dumps(content).encode()

    with run_stand_in(answer_request) as address:
        yield f"http://{address}"
