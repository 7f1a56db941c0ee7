"""Record the calls of a process between two commands; Python imports this module first from a folder of PYTHONPATH.

`TRACE_COMMANDS` and `TRACE_REPLIES` name two pipes. After the line "start", calls are recorded until the line "stop".
"""

import inspect
import json
import os
import sys
import threading
from pathlib import Path
from types import FrameType

_CONTROL = "trace-control"
_REQUEST = "run_asgi"
_THREADS = ("MainThread", "inference")
_PACKAGES = tuple(f"{Path(__file__).parents[3] / package}/" for package in ("app", "metadata", "tasks"))


def _is_periodic(frame: FrameType | None) -> bool:
    """Return whether a periodic task runs or wakes up: a request runs in a coroutine of its own, and never sleeps."""
    if frame is not None and frame.f_code.co_name == "_set_result_unless_cancelled":
        return True
    outermost = ""
    while frame is not None:
        if frame.f_code.co_flags & inspect.CO_COROUTINE:
            outermost = frame.f_code.co_name
        frame = frame.f_back
    return outermost not in ("", _REQUEST)


def _caller_of(frame: FrameType) -> tuple[str, str]:
    """Return the file and the name of the function of this project that has called `frame`; empty if none has."""
    caller = frame.f_back
    while caller is not None and not caller.f_code.co_filename.startswith(_PACKAGES):
        caller = caller.f_back
    return ("", "") if caller is None else (caller.f_code.co_filename, caller.f_code.co_qualname)


class _Recorder:
    def __init__(self) -> None:
        self.is_on = False
        self.calls: list[tuple[str, str, int, str, tuple[str, str]]] = []
        self.c_calls = 0

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        thread = threading.current_thread().name
        if self.is_on and thread.startswith(_THREADS) and not _is_periodic(frame):
            if event == "call":
                code = frame.f_code
                self.calls.append((code.co_filename, code.co_qualname, code.co_firstlineno, thread, _caller_of(frame)))
            elif event == "c_call":
                self.c_calls += 1

    def control(self) -> None:
        with (
            Path(os.environ["TRACE_COMMANDS"]).open() as commands,
            Path(os.environ["TRACE_REPLIES"]).open("w") as replies,
        ):
            for command in commands:
                self.is_on = command == "start\n"
                reply = {} if self.is_on else {"calls": self.calls, "c_calls": self.c_calls}
                self.calls, self.c_calls = [], 0
                replies.write(json.dumps(reply) + "\n")
                replies.flush()


if "TRACE_COMMANDS" in os.environ:
    recorder = _Recorder()
    threading.Thread(target=recorder.control, name=_CONTROL, daemon=True).start()
    threading.setprofile(recorder.profile)
    sys.setprofile(recorder.profile)
