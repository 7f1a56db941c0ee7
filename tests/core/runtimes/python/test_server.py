"""Test Python models in a server process, from start to stop."""

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.data.chariot import image_input
from tests.support.models.model_folders import write_model
from tests.support.polling import wait_until
from tests.support.servers.server_process import run_server

CODE = """
    import threading, time
    from pathlib import Path
    class Model:
        def predict(self, image):
            if image.shape[0] == 48:
                return []
            Path(__file__).with_name("reached").touch()
            threading.Event().wait()
        def close(self):
            for _ in range(1000):
                time.sleep(0)
            Path(__file__).with_name("closed").touch()
"""

pytestmark = pytest.mark.slow


def infer(address: str) -> int:
    body: dict[str, Any] = {"inputs": [image_input()]}
    return httpx.post(f"{address}/v2/models/m-m/infer", json=body, timeout=60).status_code


def test_models_are_closed_at_the_same_time_when_the_server_stops(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", CODE)
    hangs = "import threading\nclass Model:\n    def predict(self, image): ...\n"
    for name in "abc":
        write_model(tmp_path / name, f"{hangs}    def close(self): threading.Event().wait()\n")
    with run_server("--model-repository", str(tmp_path), "--allow-code") as server:
        assert infer(server.address) == 200
        started = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started < 10, "models that hang do not wait for each other"
        assert (folder / "closed").is_file()


def test_hung_call_does_not_keep_server_from_stopping(tmp_path: Path) -> None:
    # The height differs from that of the image that is sent, so the call hangs.
    folder = write_model(tmp_path / "m", CODE.replace("== 48", "== 47"))
    with run_server("--model", str(folder), "--allow-code", "--drain-timeout", "1") as server:
        address = server.address

        def ask() -> None:
            with suppress(httpx.HTTPError):
                infer(address)

        thread = threading.Thread(target=ask)
        thread.start()
        wait_until((folder / "reached").is_file)
        assert server.stop() == 0
        thread.join(60)


def test_hung_load_does_not_keep_server_from_stopping(tmp_path: Path) -> None:
    code = "import pathlib, threading\npathlib.Path(__file__).with_name('reached').touch()\nthreading.Event().wait()"
    folder = write_model(tmp_path / "never", code)
    with run_server("--model", str(folder), "--allow-code") as server:
        wait_until((folder / "reached").is_file)
        assert server.stop() == 0
