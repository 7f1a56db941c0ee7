"""Models in processes of their own, which end in every way a process can."""

import logging
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.assembly.models import describe, load
from app.engine.interest import CancellationToken, on_behalf_of
from app.engine.registry import ModelState, Registry
from app.engine.servable import Servable
from app.settings.model import ModelError, ModelSource
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import Prediction
from tasks.exchange.tensor import Datatype, Tensor
from tests.support.model_folders import source, write
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
SEGV, EXIT, KILL, ALLOCATE, HANG, HOLD, START = range(1, 8)

pytestmark = pytest.mark.slow


class Isolated:
    """A model that ends as it is told to, and the processes that it has lost."""

    def __init__(self, source: ModelSource) -> None:
        self.lost: list[str] = []
        self.registry = Registry([source])
        self.registration = self.registry.load(source, lambda of: load(of, lambda _, how: self.lost.append(how)))

    def ask(self, what: int = 0, seconds: float | None = None) -> int:
        """Have it do `what`: the number of its process."""
        pixels = Tensor(name="image", datatype=Datatype.UINT8, data=np.full((64, 64, 3), what, np.uint8))
        request = InferenceRequest(id="1", model_name="m", inputs=(pixels,))
        with on_behalf_of(CancellationToken(None if seconds is None else time.monotonic() + seconds)):
            answered = self.servable.answer(request, Limits())
        (output,) = answered.outputs
        return int(label(output.predictions[0]))

    @property
    def servable(self) -> Servable:
        """What answers, ready or not."""
        assert self.registration.servable is not None, self.registration.reason
        return self.registration.servable

    def refused(self, what: int, seconds: float | None = None) -> InferenceError:
        """The refusal of what cannot be answered."""
        with pytest.raises(InferenceError) as caught:
            self.ask(what, seconds)
        return caught.value

    def forget(self) -> None:
        """Serve it no longer."""
        self.registry.replace("m", [])
        del self.registration

    def await_restart(self) -> None:
        """Wait until it is ready again."""
        wait_until(lambda: not self.registry.unready)


def runs(process: int) -> bool:
    """Whether there is such a process, and it is more than a name in the table."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def label(prediction: Prediction) -> str:
    """Of the only object that was found."""
    found: Any = prediction
    (only,) = found.labels
    return only


@contextmanager
def isolated(folder: Path, code: str = CODE, **settings: Any) -> Generator[Isolated]:
    """Such a model, loaded, and forgotten at the end."""
    made = Isolated(source(write(folder, code, isolate=True, **settings)))
    try:
        yield made
    finally:
        made.forget()


def test_a_crash_is_refused_told_and_mended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHARIOTEER_RECORD_TO", "postgresql://somebody:secret@host")
    with isolated(tmp_path / "m") as model:
        first = model.ask()
        assert first != os.getpid()
        assert model.ask() == first
        assert b"secret" not in Path(f"/proc/{first}/environ").read_bytes()
        wait_until(lambda: ("own", logging.WARNING, "seen 0") in caplog.record_tuples)
        (seen, *_) = [each for each in caplog.records if each.name == "own"]
        assert vars(seen)["of"] == "known here only"
        grandchild = model.ask(START)
        assert runs(grandchild)
        error = model.refused(SEGV)
        assert error.kind is ErrorKind.MODEL_NOT_READY
        told = "The process of model 'm' ended (signal 11, SIGSEGV) and is being restarted"
        assert error.message == told
        assert model.registry.unready == f"m/1: {told}"
        (registration,) = model.registry.registrations
        assert (registration.state, registration.servable) == (ModelState.UNAVAILABLE, None)
        assert told in model.refused(0).message
        model.await_restart()
        assert model.registry.find("m").state is ModelState.READY
        second = model.ask()
        assert second != first
        assert not runs(grandchild)
        assert model.lost == ["signal 11, SIGSEGV"]
        (line,) = [each for each in caplog.records if each.message == "model process ended"]
        assert (line.levelno, vars(line)["how"]) == (logging.ERROR, "signal 11, SIGSEGV")


def test_every_end_is_told(tmp_path: Path) -> None:
    with isolated(tmp_path / "m") as model:
        for what, how in ((EXIT, "exit status 0"), (KILL, "signal 9, SIGKILL")):
            model.await_restart()
            assert f"({how})" in model.refused(what).message
            wait_until(lambda how=how: model.lost[-1:] == [how])


def test_a_call_that_hangs_is_refused_at_its_deadline_and_ends_the_process(tmp_path: Path) -> None:
    with isolated(tmp_path / "m", timeout_seconds=0.5, instances=1) as model:
        first = model.ask()
        assert model.refused(HOLD, seconds=0.3).kind is ErrorKind.DEADLINE_EXCEEDED
        wait_until(lambda: bool(model.lost))
        assert model.lost == ["it hung: no answer to a call within 5.5 s"]
        model.await_restart()
        assert model.ask() != first
        assert not runs(first)


def test_a_python_model_that_says_it_hangs_is_started_again(tmp_path: Path) -> None:
    with isolated(tmp_path / "m", timeout_seconds=0.3) as model:
        assert model.refused(HANG).kind is ErrorKind.DEADLINE_EXCEEDED
        wait_until(lambda: bool(model.lost))
        assert model.lost == ["it hung: The model has not returned from a call of more than 0.3 s"]
        model.await_restart()


def test_memory_beyond_the_limit_is_refused_and_not_taken(tmp_path: Path) -> None:
    with isolated(tmp_path / "m", memory_limit_bytes=512 * 1024 * 1024) as model:
        first = model.ask()
        error = model.refused(ALLOCATE)
        assert (error.kind, error.message) == (ErrorKind.MODEL_FAILED, "The model failed: MemoryError")
        assert model.ask() == first


def test_a_limit_without_a_process_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", CODE, memory_limit_bytes=2**30)
    with pytest.raises(ModelError, match='"memory_limit_bytes" needs "isolate": true'):
        load(source(folder))


def test_a_model_that_is_dropped_ends_its_process(tmp_path: Path) -> None:
    code = (
        CODE
        + "\n        def close(self):\n            __import__('pathlib').Path(__file__).with_name('closed').touch()"
    )
    with isolated(tmp_path / "m", code) as model:
        process = model.ask()
        assert runs(process)
    del model
    wait_until(lambda: not runs(process))
    assert (tmp_path / "m" / "closed").is_file()


@pytest.mark.parametrize(
    ("begin", "told"),
    [
        ("raise ValueError('no weights')", "importing it failed: ValueError: no weights (model.py, line 1)"),
        ("import ctypes; ctypes.string_at(0)", "its process ended while it was loaded (signal 11, SIGSEGV)"),
    ],
)
def test_what_goes_wrong_while_loading_is_a_sentence(tmp_path: Path, begin: str, told: str) -> None:
    folder = write(tmp_path / "m", f"{begin}\nclass Model:\n    def predict(self, image): ...", isolate=True)
    for step in (load, describe):
        with pytest.raises(ModelError) as caught:
            step(source(folder))
        assert told in str(caught.value)


def test_a_load_that_hangs_is_ended(tmp_path: Path) -> None:
    code = "import ctypes\nctypes.PyDLL(None).sleep(1000)"
    folder = write(tmp_path / "m", code, isolate=True, load_timeout_seconds=1)
    with pytest.raises(ModelError, match="its process was not ready within 1 s"):
        load(source(folder))


def test_files_that_changed_are_not_taken_up_by_a_restart(tmp_path: Path) -> None:
    with isolated(tmp_path / "m") as model:
        write(tmp_path / "m", CODE, isolate=True, labels=["another"])
        code = CODE.replace("class Model:", "class Model:\n        labels = ['another']")
        write(tmp_path / "m", code, isolate=True)
        model.refused(EXIT)
        wait_until(lambda: "reload it" in model.registry.unready)
