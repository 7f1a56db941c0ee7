"""Run Charioteer on ARM under emulation: ``python -m tests.support.arm`` (``make test-arm``), as root on Debian.

Debian's debootstrap brings a system for aarch64 into build/arm, and uv the wheels of Charioteer. The kernel starts the
programs in it with qemu-user-static, child processes too. First a server there answers clients of this processor: one
request of each image task, whose numbers are compared with a server here, and all checks of `conform`. Then tests run
there: the golden cases of every protocol, and quick tests of the store, preprocessing and postprocessing.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.platform.proxy import MODELS
from tests.support.processors import ROOT, run_all
from tests.support.servers.server_process import ServerProcess, run_server

SYSTEM = ROOT / "build" / "arm"
_PROGRAMS = {"debootstrap": "debootstrap", "qemu-aarch64-static": "qemu-user-static", "unshare": "util-linux"}
"""What this needs, and Debian's package of each."""
_BINARY_FORMATS = Path("/proc/sys/fs/binfmt_misc")
_PACKAGES = "python3,ca-certificates"
_TOLERANCE = 1e-4
_TIMEOUT_SECONDS = 900
_CONFORMING = {
    "chariot-v2-kserve": "classifier", "v2": "half_plus_two", "v1": "half_plus_two", "v2-grpc": "half_plus_two",
}  # fmt: skip
"""A fast model for each protocol of `conform`."""
PATHS = (
    "tests/conformance/test_wire.py", "tests/core/runtimes/onnxruntime/images",
    "tests/plugins/recording/stores/test_sqlite_store.py", "tests/core/runtimes/onnxruntime/test_vision.py",
    "tests/tasks/vision/test_boxes.py", "tests/tasks/vision/test_contours.py",
    "tests/tasks/vision/test_rotated_ious.py", "tests/tasks/test_postprocessing.py",
)  # fmt: skip
_TOO_SLOW = "tests/conformance/test_wire.py::test_real_server_returns_expected_response[kserve-v1/explanation-of-rows]"
"""An explanation takes fewer samples than expected before its time is over."""


def main() -> int:
    """Prepare the system, run everything, and return 1 if something fails or is missing."""
    missing = [package for program, package in _PROGRAMS.items() if shutil.which(program) is None]
    if missing or os.geteuid():
        sys.stderr.write(f"This needs root, and: apt-get install {' '.join(missing or _PROGRAMS.values())}\n")
        return 1
    if not (SYSTEM / "usr/bin/python3").exists():
        create_system()
    install()
    register_emulator()
    python = emulated_python()
    start = time.monotonic()
    failed = check_server(python)
    sys.stdout.write(f"server: {'failed' if failed else 'passed'}, {(time.monotonic() - start) / 60:.1f} minutes\n")
    sys.stdout.flush()
    return run_all(python, PATHS, "-m", "not slow", "--deselect", _TOO_SLOW) or failed


def create_system() -> None:
    """Unpack Debian's Python for aarch64; its scripts of installation are not needed, and slow under emulation."""
    subprocess.run(
        ["debootstrap", "--foreign", "--arch=arm64", "--variant=minbase", f"--include={_PACKAGES}", "bookworm", SYSTEM],
        check=True,
    )
    for package in (SYSTEM / "var/cache/apt/archives").glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", package, SYSTEM], check=True)
    (SYSTEM / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    # The processor library of ONNX Runtime reads these; the files of this machine crash it, because they are of x86.
    cores = SYSTEM / "sys/devices/system/cpu"
    cores.mkdir(parents=True, exist_ok=True)
    for name in ("possible", "present"):
        (cores / name).write_text(f"0-{(os.cpu_count() or 1) - 1}\n")


def install() -> None:
    """Install the wheels for aarch64, and copy the repository's files."""
    (python,) = (SYSTEM / "usr/bin").glob("python3.[0-9][0-9]")
    version = python.name.removeprefix("python")
    # Debian 12 has this version of the C library.
    target = ["--python-platform", "aarch64-manylinux_2_36", "--python-version", version, "--target", SYSTEM / "opt"]
    only_wheels = ["--only-binary", ":all:", "--no-binary", "charioteer"]
    subprocess.run(["uv", "pip", "install", "--quiet", *target, *only_wheels, ".[test]"], cwd=ROOT, check=True)
    shutil.rmtree(SYSTEM / "src", ignore_errors=True)
    tracked = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    for name in subprocess.run(tracked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (SYSTEM / "src" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, SYSTEM / "src" / name)


def register_emulator() -> None:
    """Let the kernel start programs of aarch64 with the emulator."""
    if not (_BINARY_FORMATS / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "none", _BINARY_FORMATS], check=True)
    if not (_BINARY_FORMATS / "qemu-aarch64").exists():
        (_BINARY_FORMATS / "register").write_bytes(Path("/usr/lib/binfmt.d/qemu-aarch64.conf").read_bytes().strip())


def emulated_python() -> list[str]:
    """Return the command that starts Python in the system, without the environment of this one."""
    environment = ["env", "-i", "--chdir=/src", "PATH=/usr/bin:/bin", "HOME=/root", "PYTHONPATH=/opt"]
    mount = f"mount -t proc proc {SYSTEM}/proc && mount --rbind /dev {SYSTEM}/dev"
    inside = ["unshare", "--mount", "sh", "-c", f'{mount} && exec chroot {SYSTEM} "$@"', "sh"]
    return [*inside, *environment, "python3"]


def check_server(python: list[str]) -> int:
    """Compare the answers of a server there with one here, and what it recorded; return the failures of `conform`."""
    records = SYSTEM / "tmp" / "records.db"
    records.unlink(missing_ok=True)
    options = ("--model-repository", "fixtures/models", "--no-tensorflow-serving")
    emulated = (*options, "--record", "/tmp/records.db")
    with (
        run_server(*emulated, program=(*python, "-m", "charioteer"), timeout=_TIMEOUT_SECONDS) as there,
        run_server(*options) as here,
    ):
        assert there.address
        assert there.log[0].startswith("{"), "a library writes before the server"
        for model, (_, image) in MODELS.items():
            content = (ROOT / "fixtures" / "images" / image).read_bytes()
            compare(predictions(there, model, content), predictions(here, model, content), model)
        failed = max(conform(there, protocol, model) for protocol, model in _CONFORMING.items())
        assert there.stop() == 0, "".join(there.log)
    with closing(sqlite3.connect(records)) as store:
        recorded = dict(store.execute("SELECT model, COUNT(*) FROM recordings GROUP BY model"))
    assert MODELS.keys() <= recorded.keys(), recorded
    return failed


def predictions(server: ServerProcess, model: str, content: bytes) -> Any:
    """Return the predictions of an image."""
    address = f"{server.address}/v1/models/{model}:predict"
    headers = {"Content-Type": "image/jpeg"}
    return httpx.post(address, content=content, headers=headers, timeout=_TIMEOUT_SECONDS).json()["predictions"]


def compare(actual: Any, expected: Any, path: str) -> None:
    """Raise AssertionError where JSON values differ, or numbers by more than the tolerance."""
    if isinstance(expected, dict | list):
        items = expected.items() if isinstance(expected, dict) else enumerate(expected)
        assert len(actual) == len(expected), path
        for key, value in items:
            compare(actual[key], value, f"{path}.{key}")
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, rel=_TOLERANCE, abs=_TOLERANCE), path
    else:
        assert actual == expected, path


def conform(server: ServerProcess, protocol: str, model: str) -> int:
    """Check a protocol of the server from a process that is not emulated, and return its exit status."""
    address = f"grpc://{server.grpc_address}" if protocol == "v2-grpc" else server.address
    arguments = ["--protocol", protocol, "--model", model, "--timeout", str(_TIMEOUT_SECONDS)]
    return subprocess.run([sys.executable, "-m", "charioteer", "conform", address, *arguments], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
