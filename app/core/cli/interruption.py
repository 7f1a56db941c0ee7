"""The end of a command after Ctrl-C."""

import atexit
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn

_INTERRUPTED = 130
_interrupted = threading.Event()


def exit_interrupted(reason: str = "interrupted") -> NoReturn:
    """Print the reason on standard error, and exit with 130."""
    _interrupted.set()
    sys.stderr.write(f"charioteer: {reason}\n")
    sys.exit(_INTERRUPTED)


# The import of this module registers the first hook, so that it runs after the hooks of models.
@atexit.register
def _skip_finalization() -> None:
    """End an interrupted process here: workers may still run native code.

    CPython before 3.14 unwinds such a thread when it asks for the interpreter again, and C++ answers that with abort.
    """
    if _interrupted.is_set():
        # The other end of a pipe may be closed.
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(_INTERRUPTED)
