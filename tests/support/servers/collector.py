"""Run a stand-in for an OTLP collector."""

from collections.abc import Generator
from contextlib import contextmanager

from tests.support.servers.stand_in import Answer, Request, run_stand_in


@contextmanager
def run_otlp_collector(received: list[tuple[str, bytes]]) -> Generator[str]:
    """Yield the collector's address, and keep the path and body of every request."""

    def answer(request: Request) -> Answer:
        received.append((request.path, request.body))
        return 200, {}, b""

    with run_stand_in(answer) as address:
        yield f"http://{address}"
