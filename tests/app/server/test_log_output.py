"""What goes into the log, as a process writes it."""

import json
import subprocess
import sys

from tests.server_process import ROOT

PROGRAM = """
import logging
from app.server.log_output import configure_logging
configure_logging("json")
class ExecuteBatchError(Exception): pass
for each in (ExecuteBatchError("left"), ValueError("kept")):
    try:
        raise each
    except Exception:
        logging.getLogger("grpc._cython.cygrpc").exception("raised in core")
logging.shutdown()
"""


def test_who_left_while_an_answer_was_written_is_no_fault_of_the_server() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert "ValueError: kept" in json.loads(line)["exception"]
