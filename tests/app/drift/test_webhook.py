"""Alerts, to a server that does not always take them."""

import json
import logging
import queue
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from app.drift.webhook import Alert, Webhook

ALERT = Alert(
    model="m", drifted=True, started=1.0, ended=2.0, images=60, alpha=0.01, similarity=0.2, baseline_similarity=0.4,
    tests=(),
)  # fmt: skip


@contextmanager
def answering(statuses: Sequence[int]) -> Generator[tuple[str, list[Any]]]:
    """A server that answers with `statuses`, one after the other, and what it was sent."""
    taken: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(statuses[len(taken) - 1])
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/alerts?key=secret", taken
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ended(url: str, count: int, backoff: Sequence[float]) -> list[str]:
    """How so many alerts end."""
    told: queue.Queue[str] = queue.Queue()
    webhook = Webhook(url, told.put, backoff)
    for _ in range(count):
        webhook.send(ALERT)
    found = [told.get(timeout=30) for _ in range(count)]
    webhook.close()
    return found


def test_an_alert_is_sent_again_until_it_is_taken() -> None:
    with answering([500, 404, 200, 204]) as (url, taken):
        assert ended(url, 2, [0, 0, 0]) == ["sent", "sent"]
    assert len(taken) == 4
    assert taken[0]["model"] == "m"
    assert taken[0]["drifted"] is True


def test_who_never_takes_it_is_given_up_and_not_named(caplog: Any) -> None:
    caplog.set_level(logging.INFO)  # as a server's
    with answering([503, 503]) as (url, _):
        assert ended(url, 1, [0]) == ["failed"]
    assert "status 503" in caplog.text
    assert "secret" not in caplog.text


def test_an_address_that_means_nothing_fails_and_the_next_alert_is_tried_all_the_same() -> None:
    assert ended("http://\ud800/x", 2, [0]) == ["failed", "failed"]


def test_nobody_there_is_given_up() -> None:
    assert ended("http://127.0.0.1:9/x", 1, [0]) == ["failed"]


def test_more_than_can_wait_are_dropped_and_closing_waits_for_no_backoff() -> None:
    told: list[str] = []
    webhook = Webhook("http://127.0.0.1:9/x", told.append, [3600])
    for _ in range(70):
        webhook.send(ALERT)
    webhook.close()
    assert told.count("dropped") >= 5
    assert not [each for each in threading.enumerate() if each.name == "drift-webhook"]
