"""Run a command as a container engine does: ``unshare --mount --net python tests/deploy/sealed.py``, as root.

Reads a JSON object from standard input: `command`, `environment`, `uid`, `health_command`, `models` (a folder, mounted
at /mnt/models) and `requests` (pairs of a path and a body or null). Runs the command as that user, without a network
and with a read-only file system. Writes the result to standard output, as JSON.
"""

import errno
import fcntl
import json
import re
import socket
import struct
import subprocess
import sys
from pathlib import Path

import httpx

_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_ADDRESS = re.compile(r'"address":"(http://[^"]+)"')
_TIMEOUT_SECONDS = 120


def main() -> None:
    job = json.load(sys.stdin)
    _bring_loopback_up()
    _make_read_only(job["models"])
    as_user = [
        "setpriv",
        f"--reuid={job['uid']}",
        "--regid=0",
        "--clear-groups",
        "--bounding-set=-all",
        "--no-new-privs",
    ]
    command, health_check = [*as_user, *job["command"]], [*as_user, *job["health_command"]]
    environment = job["environment"]
    with subprocess.Popen(command, cwd="/", env=environment, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        log: list[str] = []
        # The end of the server ends this loop, and the caller's timeout both.
        while not (announced := _ADDRESS.search(log[-1] if log else "")):
            line = server.stderr.readline()
            assert line, "".join(log)
            log.append(line)
        address = announced[1].replace("0.0.0.0", "127.0.0.1")
        try:
            health = subprocess.run(health_check, cwd="/", env=environment, timeout=_TIMEOUT_SECONDS).returncode
            responses = [_answer(address, path, body) for path, body in job["requests"]]
        finally:
            server.terminate()
        log += server.stderr.readlines()
    status = server.returncode
    result = {"health": health, "answers": responses, "status": status, "log": log, "sealed": _is_read_only()}
    json.dump(result, sys.stdout)


def _bring_loopback_up() -> None:
    with socket.socket() as control_socket:
        fcntl.ioctl(control_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def _make_read_only(models: str) -> None:
    """Mount the models at /mnt/models, and make everything read-only for this process and its children."""
    _mount("--make-rprivate", "/")
    _mount("-t", "tmpfs", "tmpfs", "/mnt")
    Path("/mnt/models").mkdir()
    _mount("--bind", models, "/mnt/models")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount_point, kind, *_ = line.split()
        # The new tmpfs hides earlier mounts below /mnt.
        if mount_point in ("/", "/mnt", "/mnt/models") or (kind == "tmpfs" and not mount_point.startswith("/mnt/")):
            _mount("-o", "remount,bind,ro", mount_point)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _is_read_only() -> bool:
    """Return whether even root cannot write to /, the models and the folders for temporary files."""
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
    method = "GET" if body is None else "POST"
    response = httpx.request(method, f"{address}{path}", json=body, timeout=_TIMEOUT_SECONDS)
    return response.status_code, response.text


if __name__ == "__main__":
    main()
