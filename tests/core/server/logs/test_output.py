"""Log output of a process."""

import json
import subprocess
import sys

from tests.support.servers.server_process import ROOT

PROGRAM = """
import logging
from app.core.server.logs.output import configure_logging
configure_logging("json")
class ExecuteBatchError(Exception): pass
for error in (ExecuteBatchError("left"), ValueError("kept")):
    try:
        raise error
    except Exception:
        logging.getLogger("grpc._cython.cygrpc").exception("raised in core")
logging.shutdown()
"""


def test_grpc_error_of_a_disconnected_client_is_not_logged() -> None:
    completed = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    (line,) = completed.stderr.splitlines()
    assert "ValueError: kept" in json.loads(line)["exception"]


CRASHES = """
import threading
from app.core.server.logs.output import configure_logging
configure_logging("json")
def fail():
    raise ValueError("in a thread")
thread = threading.Thread(target=fail)
thread.start()
thread.join()
raise ValueError("at the end")
"""


def test_crashes_are_lines_of_a_json_log() -> None:
    completed = subprocess.run([sys.executable, "-c", CRASHES], cwd=ROOT, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in completed.stderr.splitlines()]
    assert completed.returncode == 1
    assert ["thread" in line["exception"] for line in lines] == [True, False]


LINE_ENDS = """
import logging, structlog
from app.core.server.logs.output import configure_logging
configure_logging("json")
text = "a\u2028b\u2029c\x85d\u2027\xe9"
structlog.get_logger().info("inference", metadata={text: [text]})
logging.getLogger("app").warning("model failed", extra={"reason": text})
logging.shutdown()
"""


def test_unicode_line_ends_are_escaped_in_json_lines() -> None:
    completed = subprocess.run([sys.executable, "-c", LINE_ENDS], cwd=ROOT, capture_output=True, check=True)
    text = "a\u2028b\u2029c\x85d\u2027\xe9"
    own, foreign = completed.stderr.decode().splitlines()
    assert json.loads(own)["metadata"] == {text: [text]}
    assert json.loads(foreign)["reason"] == text


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
