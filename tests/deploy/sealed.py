"""What a container engine does, by namespaces: ``unshare --mount --net python tests/deploy/sealed.py``, run by root.

Reads a JSON object from standard input: `command`, `environment`, `uid`, `health_command`, `models` (a folder, seen at
/mnt/models) and `requests` (a path and a body or null, each). Runs the command without a network, on a file system
that cannot be written to, as that user; writes what came of it to standard output, as JSON.
"""

import errno
import fcntl
import json
import re
import socket
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_ADDRESS = re.compile(r"Charioteer answers at (http://\S+)")
_SECONDS = 120


def main() -> None:
    job = json.load(sys.stdin)
    _bring_loopback_up()
    _seal(job["models"])
    become = [
        "setpriv",
        f"--reuid={job['uid']}",
        "--regid=0",
        "--clear-groups",
        "--bounding-set=-all",
        "--no-new-privs",
    ]
    command, check = [*become, *job["command"]], [*become, *job["health_command"]]
    with subprocess.Popen(command, cwd="/", env=job["environment"], stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        log = _Log(server.stderr)
        try:
            address = log.address()
            health = subprocess.run(check, cwd="/", env=job["environment"], timeout=_SECONDS).returncode
            answers = [_answer(address, path, body) for path, body in job["requests"]]
        finally:
            server.terminate()
        status = server.wait(_SECONDS)
    result = {"health": health, "answers": answers, "status": status, "log": log.lines, "sealed": _is_sealed()}
    json.dump(result, sys.stdout)


class _Log:
    """The lines of a server's log, and the address in one of them."""

    def __init__(self, stream: IO[str]) -> None:
        self.lines: list[str] = []
        self._stream, self._said = stream, threading.Event()
        self._address = ""
        threading.Thread(target=self._read, daemon=True).start()

    def address(self) -> str:
        self._said.wait(_SECONDS)
        assert self._address, "".join(self.lines)
        return self._address.replace("0.0.0.0", "127.0.0.1")

    def _read(self) -> None:
        for line in self._stream:
            self.lines.append(line)
            if found := _ADDRESS.search(line):
                self._address = found[1]
                self._said.set()
        self._said.set()


def _bring_loopback_up() -> None:
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def _seal(models: str) -> None:
    """Show the models at /mnt/models, and make everything read-only, for this process and what it starts."""
    _mount("--make-rprivate", "/")
    _mount("-t", "tmpfs", "tmpfs", "/mnt")
    Path("/mnt/models").mkdir()
    _mount("--bind", models, "/mnt/models")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        # What lay below /mnt lies under the folder that is mounted there now.
        if place in ("/", "/mnt", "/mnt/models") or (kind == "tmpfs" and not place.startswith("/mnt/")):
            _mount("-o", "remount,bind,ro", place)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _is_sealed() -> bool:
    """Whether not even root can write, neither to the root, nor beside the models, nor where temporary files go."""
    for folder in ("/", "/tmp", "/mnt/models", "/dev/shm"):
        try:
            (Path(folder) / "charioteer-was-here").touch()
        except OSError as error:
            if error.errno != errno.EROFS:
                return False
        else:
            return False
    return True


def _answer(address: str, path: str, body: object) -> tuple[int, str]:
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}{path}", content, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


if __name__ == "__main__":
    main()
