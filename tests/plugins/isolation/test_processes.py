"""Test isolated models whose processes end in every possible way."""

import logging
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.core.assembly.models import describe, load
from app.core.engine.cancellation import CancellationToken, cancellation_scope
from app.core.engine.models.registry import ModelState, Registry
from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelError, ModelSource
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import Datatype, Tensor
from tests.support.models.model_folders import source_at, write_model
from tests.support.polling import wait_until

CODE = """
    import ctypes, enum, logging, os, signal, subprocess, sys, threading

    class Own(enum.StrEnum):
        KIND = "known here only"

    def found(number):
        return {"label": str(number), "score": 0.5, "xmin": 1, "ymin": 1, "xmax": 2, "ymax": 2}

    class Model:
        def predict(self, image):
            logging.getLogger("own").warning("seen %d", image[0, 0, 0], extra={"of": Own.KIND, "with": lambda: None})
            match int(image[0, 0, 0]):
                case 1:
                    ctypes.string_at(0)
                case 2:
                    os._exit(0)
                case 3:
                    os.kill(os.getpid(), signal.SIGKILL)
                case 4:
                    bytearray(1 << 30)
                case 5:
                    threading.Event().wait()
                case 6:
                    # Holds the interpreter's lock, as native code may that was not written for threads.
                    ctypes.PyDLL(None).sleep(1000)
                case 7:
                    # As loaders of data start processes of theirs.
                    return [found(subprocess.Popen(["sleep", "1000"]).pid)]
            return [found(os.getpid())]
"""
SEGV, EXIT, KILL, ALLOCATE, HANG, HOLD_GIL, SPAWN = range(1, 8)

pytestmark = pytest.mark.slow


class EndReasons(logging.Handler):
    """Record why processes ended, from the log."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == "model process ended":
            self.reasons.append(vars(record)["how"])


class IsolatedModel:
    """Hold a model that crashes on request, and record why its processes ended."""

    def __init__(self, source: ModelSource) -> None:
        self.registry = Registry([source])
        self._log = EndReasons()
        logging.getLogger("app.plugins.isolation").addHandler(self._log)
        self.registration = self.registry.load(source, load)

    @property
    def exit_reasons(self) -> list[str]:
        return self._log.reasons

    def ask(self, action: int = 0, seconds: float | None = None) -> int:
        """Run `action` in the model, and return its answer: a PID."""
        pixels = Tensor(name="image", datatype=Datatype.UINT8, data=np.full((64, 64, 3), action, np.uint8))
        request = InferenceRequest(id="1", model_name="m", inputs=(pixels,))
        with cancellation_scope(CancellationToken(None if seconds is None else time.monotonic() + seconds)):
            result = self.servable.predict(request, Limits())
        found: Any = result.outputs[0].predictions[0]
        return int(found.labels[0])

    @property
    def servable(self) -> Servable:
        assert self.registration.servable is not None, self.registration.reason
        return self.registration.servable

    def error_of_call(self, action: int, seconds: float | None = None) -> InferenceError:
        with pytest.raises(InferenceError) as caught:
            self.ask(action, seconds)
        return caught.value

    def unload(self) -> None:
        self.registry.replace("m", [])
        del self.registration
        logging.getLogger("app.plugins.isolation").removeHandler(self._log)

    def await_restart(self) -> None:
        wait_until(lambda: not self.registry.not_ready_reason)


def is_running(pid: int) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def isolated(folder: Path, code: str = CODE, **settings: Any) -> Generator[IsolatedModel]:
    model = IsolatedModel(source_at(write_model(folder, code, isolate=True, **settings)))
    try:
        yield model
    finally:
        model.unload()


def test_crash_is_reported_and_process_is_restarted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHARIOTEER_RECORD_TO", "postgresql://user:secret@host")
    with isolated(tmp_path / "m") as model:
        first_pid = model.ask()
        assert first_pid != os.getpid()
        assert model.ask() == first_pid
        assert b"secret" not in Path(f"/proc/{first_pid}/environ").read_bytes()
        wait_until(lambda: ("own", logging.WARNING, "seen 0") in caplog.record_tuples)
        (own_record, *_) = [record for record in caplog.records if record.name == "own"]
        assert vars(own_record)["of"] == "known here only"
        grandchild = model.ask(SPAWN)
        assert is_running(grandchild)
        error = model.error_of_call(SEGV)
        assert error.kind is ErrorKind.MODEL_NOT_READY
        message = "The process of model 'm' ended (signal 11, SIGSEGV) and is being restarted"
        assert error.message == message
        assert model.registry.not_ready_reason == f"m/1: {message}"
        (registration,) = model.registry.registrations
        assert (registration.state, registration.servable) == (ModelState.UNAVAILABLE, None)
        assert message in model.error_of_call(0).message
        model.await_restart()
        assert model.registry.find("m").state is ModelState.READY
        second_pid = model.ask()
        assert second_pid != first_pid
        assert not is_running(grandchild)
        assert model.exit_reasons == ["signal 11, SIGSEGV"]
        for action, reason in ((EXIT, "exit status 0"), (KILL, "signal 9, SIGKILL")):
            assert f"({reason})" in model.error_of_call(action).message
            wait_until(lambda reason=reason: model.exit_reasons[-1:] == [reason])
            model.await_restart()
        (end_record, *_) = [record for record in caplog.records if record.message == "model process ended"]
        assert (end_record.levelno, vars(end_record)["how"]) == (logging.ERROR, "signal 11, SIGSEGV")


def test_hung_call_times_out_and_process_is_restarted(tmp_path: Path) -> None:
    with isolated(tmp_path / "m", timeout_seconds=0.5, instances=1) as model:
        first = model.ask()
        assert model.error_of_call(HOLD_GIL, seconds=0.3).kind is ErrorKind.DEADLINE_EXCEEDED
        wait_until(lambda: bool(model.exit_reasons))
        assert model.exit_reasons == ["it hung: no answer to a call within 5.5 s"]
        model.await_restart()
        assert model.ask() != first
        assert not is_running(first)


def test_python_model_that_reports_hung_call_is_restarted(tmp_path: Path) -> None:
    with isolated(tmp_path / "m", timeout_seconds=0.3) as model:
        assert model.error_of_call(HANG).kind is ErrorKind.DEADLINE_EXCEEDED
        wait_until(lambda: bool(model.exit_reasons))
        assert model.exit_reasons == ["it hung: The model has not returned from a call of more than 0.3 s"]
        model.await_restart()


def test_allocation_beyond_memory_limit_fails_without_crash(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with isolated(tmp_path / "m", memory_limit_bytes=512 * 1024 * 1024) as model:
        first = model.ask()
        error = model.error_of_call(ALLOCATE)
        assert (error.kind, error.message) == (ErrorKind.MODEL_FAILED, "The model failed: MemoryError")
        assert model.ask() == first
        wait_until(lambda: "isolated model failed" in caplog.messages)
        (failure,) = [record for record in caplog.records if record.message == "isolated model failed"]
        assert vars(failure)["exception"].endswith("InferenceError: The model failed: MemoryError")


def test_memory_limit_without_isolation_is_rejected(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", CODE, memory_limit_bytes=2**30)
    with pytest.raises(ModelError, match='"memory_limit_bytes" needs "isolate": true'):
        load(source_at(folder))


def test_unloaded_model_is_closed_and_its_process_ends(tmp_path: Path) -> None:
    close = "\n        def close(self):\n            open(__file__ + '.closed', 'x')"
    with isolated(tmp_path / "m", CODE + close) as model:
        pid = model.ask()
        assert is_running(pid)
    del model
    wait_until(lambda: not is_running(pid))
    assert (tmp_path / "m" / "model.py.closed").is_file()


@pytest.mark.parametrize(
    ("statement", "error_text"),
    [
        ("raise ValueError('no weights')", "importing it failed: ValueError: no weights (model.py, line 1)"),
        ("import ctypes; ctypes.string_at(0)", "its process ended while it was loaded (signal 11, SIGSEGV)"),
    ],
)
def test_load_failure_is_reported_with_its_cause(tmp_path: Path, statement: str, error_text: str) -> None:
    folder = write_model(tmp_path / "m", f"{statement}\nclass Model:\n    def predict(self, image): ...", isolate=True)
    for step in (load, describe):
        with pytest.raises(ModelError) as caught:
            step(source_at(folder))
        assert error_text in str(caught.value)


def test_hung_load_is_stopped_at_timeout(tmp_path: Path) -> None:
    code = "import ctypes\nctypes.PyDLL(None).sleep(1000)"
    folder = write_model(tmp_path / "m", code, isolate=True, load_timeout_seconds=1)
    with pytest.raises(ModelError, match="its process was not ready within 1 s"):
        load(source_at(folder))


def test_restart_does_not_load_changed_files(tmp_path: Path) -> None:
    with isolated(tmp_path / "m") as model:
        code = CODE.replace("class Model:", "class Model:\n        labels = ['another']")
        write_model(tmp_path / "m", code, isolate=True)
        model.error_of_call(EXIT)
        wait_until(lambda: "reload it" in model.registry.not_ready_reason)
