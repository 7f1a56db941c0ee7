"""Log output of a process."""

import json
import subprocess
import sys

import pytest

from tests.support.servers.server_process import ROOT

JSON = """
import logging, structlog, threading
from app.core.server.logs.output import configure_logging
configure_logging("json")
class ExecuteBatchError(Exception): pass
for error in (ExecuteBatchError("left"), ValueError("kept")):
    try:
        raise error
    except Exception:
        logging.getLogger("grpc._cython.cygrpc").exception("raised in core")
text = "a\u2028b\u2029c\x85d\u2027\xe9"
structlog.get_logger().info("inference", metadata={text: [text]})
logging.getLogger("app").warning("model failed", extra={"reason": text + "\\udcff"})
structlog.get_logger().info("inference", client="jwt:\\ud800")
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
raise ValueError("at the end")
"""


def test_json_log_has_escaped_line_ends_and_crashes_but_no_disconnected_clients_of_grpc() -> None:
    completed = subprocess.run([sys.executable, "-c", JSON], cwd=ROOT, capture_output=True, check=False)
    assert completed.returncode == 1
    text = "a\u2028b\u2029c\x85d\u2027\xe9"
    error, own, foreign, client, in_thread, at_end = map(json.loads, completed.stderr.decode().splitlines())
    assert "ValueError: kept" in error["exception"]
    assert own["metadata"] == {text: [text]}
    assert foreign["reason"] == text + "?"
    assert client["client"] == "jwt:?"
    assert ["ZeroDivisionError" in line["exception"] for line in (in_thread, at_end)] == [True, False]


CONSOLE = """
import logging
from app.core.engine.request_context import RequestContext
from app.core.observers.request_log import RequestLog
from app.core.server.logs.output import configure_logging
configure_logging("console")
context = RequestContext(
    protocol="chariot-v2-kserve", request_id="0123-4567", model_name="oriented-detector", total=1234567
)
RequestLog().observe(context)
logging.getLogger("app").warning("model failed to load", extra={"model": "\\33[31mdetector"})
logging.shutdown()
"""


def test_lines_on_a_terminal_are_short_and_without_control_characters() -> None:
    completed = subprocess.run([sys.executable, "-c", CONSOLE], cwd=ROOT, capture_output=True, text=True, check=True)
    inference, failure = completed.stderr.splitlines()
    assert len(inference) <= 120
    assert "model=oriented-detector" in inference
    assert "total_ms=1.235" in inference
    assert "request_id" not in inference
    assert "model failed to load" in failure
    assert r"\x1b[31mdetector" in failure
    assert "\x1b" not in completed.stderr


TRACEBACK = """
import logging, sys, structlog
from app.core.server.logs.output import configure_logging
configure_logging(sys.argv[1])
try:
    try:
        raise ValueError("\33[31mred" + 10_000_000 * "x")
    except ValueError as error:
        raise RuntimeError("the last") from error
except RuntimeError:
    structlog.get_logger().exception("own")
    logging.getLogger("app").exception("foreign")
logging.shutdown()
"""


@pytest.mark.parametrize(("log_format", "escape"), [("json", r"\u001b"), ("console", r"\x1b")])
def test_long_traceback_keeps_its_ends(log_format: str, escape: str) -> None:
    command = [sys.executable, "-c", TRACEBACK, log_format]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert len(completed.stderr) < 100_000
    for text in ("Traceback", f"ValueError: {escape}[31mred", "RuntimeError: the last", "characters ..."):
        assert completed.stderr.count(text) >= 2
    assert "\x1b" not in completed.stderr
