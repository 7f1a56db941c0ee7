"""Alerts to a webhook that sometimes fails."""

import json
import logging
import queue
import socket
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from app.plugins.drift.monitor import DriftWindow
from app.plugins.drift.webhook import Webhook
from tests.support.servers.stand_in import fake_chariot

ALERT = DriftWindow(
    model="m", drifted=True, started=1.0, ended=2.0, images=60, alpha=0.01, similarity=0.2, baseline_similarity=0.4,
    tests=(),
)  # fmt: skip


@contextmanager
def answering(statuses: Sequence[int]) -> Generator[tuple[str, list[Any]]]:
    """Run a server that answers with `statuses` in order; yield its URL and the alerts that it received."""
    received: list[Any] = []

    def answer(number: int, body: bytes) -> tuple[int, object]:
        received.append(json.loads(body))
        return statuses[number - 1], None

    with fake_chariot(answer) as url:
        yield f"{url}/alerts?key=secret", received


def outcomes(url: str, count: int, backoff: Sequence[float]) -> list[str]:
    """Send `count` alerts, and return their outcomes."""
    reported: queue.Queue[str] = queue.Queue()
    webhook = Webhook(url, reported.put, backoff)
    for _ in range(count):
        webhook.send(ALERT)
    results = [reported.get(timeout=30) for _ in range(count)]
    webhook.close()
    return results


def test_alert_is_retried_until_accepted() -> None:
    with answering([500, 404, 200, 204]) as (url, received):
        assert outcomes(url, 2, [0, 0, 0]) == ["sent", "sent"]
    assert len(received) == 4
    assert received[0]["model"] == "m"
    assert received[0]["drifted"] is True


def test_body_of_the_answer_is_not_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:
        port = server.getsockname()[1]
        outcome = pool.submit(outcomes, f"http://127.0.0.1:{port}/", 1, [])
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
            assert outcome.result(30) == ["sent"]


def test_failing_webhook_is_given_up_without_logging_its_key(caplog: Any) -> None:
    caplog.set_level(logging.INFO)  # the level of a server
    with answering([503, 503]) as (url, _):
        assert outcomes(url, 1, [0]) == ["failed"]
    assert "status 503" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("url", ["http://\ud800/x", "http://127.0.0.1:9/x"], ids=["invalid", "unreachable"])
def test_unusable_url_fails_each_alert(url: str) -> None:
    assert outcomes(url, 2, [0]) == ["failed", "failed"]


def test_alerts_above_queue_limit_are_dropped_and_close_skips_backoff() -> None:
    reported: list[str] = []
    webhook = Webhook("http://127.0.0.1:9/x", reported.append, [3600])
    for _ in range(70):
        webhook.send(ALERT)
    webhook.close()
    assert reported.count("dropped") >= 5
    assert not [thread for thread in threading.enumerate() if thread.name == "drift-webhook"]
