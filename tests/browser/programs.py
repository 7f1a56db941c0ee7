"""Run Python programs that the page shows in one process: each in its own would import the clients again."""

import json
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.support.servers.client_environments import python_with

_LOOP = """
import contextlib, io, json, os, sys, traceback
for line in sys.stdin:
    program, folder, variables = json.loads(line)
    os.chdir(folder)
    os.environ.update(variables)
    error = ""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        try:
            exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
        except BaseException:
            error = traceback.format_exc()
    for name in variables:
        del os.environ[name]
    print(json.dumps([output.getvalue(), error]), flush=True)
"""


class Programs:
    """A process that runs programs one after the other."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, program: str, folder: Path, **variables: str) -> str:
        """Run a program in a folder, with environment variables, and return what it prints; it must not fail."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([program, str(folder), variables]) + "\n")
        self._process.stdin.flush()
        output, error = json.loads(self._process.stdout.readline())
        assert error == "", error
        return output


@contextmanager
def run_programs() -> Generator[Programs]:
    """Start a process that has the clients of every protocol."""
    command = [str(python_with("tritonclient")), "-c", _LOOP]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Programs(process)
