"""Ctrl-C in commands that run models."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.polling import wait_until
from tests.support.servers.server_process import ROOT

_IMAGE_FILE = ROOT / "fixtures" / "images" / "shape.jpg"

# Its own thread stays in short native calls, as workers do that run a model.
_MODEL = """
import atexit
import threading
from pathlib import Path

import cv2
import numpy as np

atexit.register((Path(__file__).parent / "hook-ran").touch)
_IMAGE = np.zeros((400, 400, 3), np.uint8)


def blur() -> None:
    while True:
        cv2.GaussianBlur(_IMAGE, (9, 9), 0)


class Model:
    def load(self):
        threading.Thread(target=blur, daemon=True).start()

    def predict(self, images):
        (Path(__file__).parent / "called").touch()
        return [[1.0] for _ in images]
"""


def test_interrupted_command_exits_with_130_while_native_code_runs(tmp_path: Path) -> None:
    settings = {"implementation": "model:Model", "task_type": "IMAGE_CLASSIFICATION", "labels": ["a"]}
    (tmp_path / "model.py").write_text(_MODEL)
    (tmp_path / "model-settings.json").write_text(json.dumps(settings))
    # Children of a shell's background job ignore Ctrl-C.
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from app.core.cli import main; main()"
    )
    model = ["--model", str(tmp_path), "--allow-code", "--samples", "100000"]
    command = [sys.executable, "-c", program, "explain", str(_IMAGE_FILE), *model]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until((tmp_path / "called").exists)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=300)
    assert (process.returncode, error) == (130, "charioteer: interrupted\n")
    assert (tmp_path / "hook-ran").exists()


_IMPORTING = """
import importlib, os, signal, sys
import charioteer
os.getpid = lambda: 1
signal.signal(signal.SIGINT, signal.default_int_handler)
importlib.import_module = lambda _: signal.raise_signal(int(sys.argv[1]))
charioteer.main()
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_first_process_of_a_container_ends_at_a_signal_during_its_imports(number: int, status: int) -> None:
    command = [sys.executable, "-c", _IMPORTING, str(int(number))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "app" / "public_api")}
    completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stderr) == (status, "")
