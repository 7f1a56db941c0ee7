"""`charioteer predict` on a terminal."""

import os
import pty
import subprocess
import sys
from contextlib import suppress

import pytest

from tests.support.servers.server_process import ROOT

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "charioteer", "predict", "fixtures/images/scene.jpg", "--model"]
MODEL = "fixtures/models/detector"
ENVIRONMENT = {**os.environ, "TERM": "xterm-256color", "TERM_PROGRAM": "", "LC_TERMINAL": "", "TMUX": "1"}
ENVIRONMENT.pop("NO_COLOR", None)


def output_on_terminal(*options: str) -> str:
    """Return what the command prints to a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, MODEL, *options], cwd=ROOT, env=ENVIRONMENT, stdout=theirs, stderr=subprocess.DEVNULL
    ) as process:
        os.close(theirs)
        received = b""
        # Linux reports the end of a terminal as an error.
        with suppress(OSError):
            while data := os.read(ours, 65536):
                received += data
    os.close(ours)
    assert process.returncode == 0
    return received.decode()


def test_image_is_shown_on_a_terminal() -> None:
    assert output_on_terminal().count("▀") > 100


@pytest.mark.parametrize("option", ["--no-show", "--json"])
def test_image_can_be_left_out(option: str) -> None:
    output = output_on_terminal(option)
    assert "▀" not in output
    assert "yellow circle" in output


def test_image_is_not_shown_in_a_pipe() -> None:
    output = subprocess.run([*COMMAND, MODEL], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert "▀" not in output.stdout
    assert "■" not in output.stdout
