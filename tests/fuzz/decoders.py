"""Fuzz the decoders of request bytes in this process, guided by coverage (atheris, the extra `fuzz`).

Whatever is not an `InferenceError` is a finding; so is an input that takes more than twenty seconds.
"""

import hashlib
import importlib
import subprocess
import sys
from pathlib import Path

import cyclopts
from rich.console import Console

_FOLDER = Path(__file__).parents[2] / "build" / "fuzz" / "decoders"
_MOST_SECONDS = 20
_NAMES = (
    "bytes-elements", "v2-binary", "v2-protobuf", "grps-protobuf", "grps-json", "chariot-json", "tensorflow-json",
    "image",
)  # fmt: skip
# Nothing of the server is imported before atheris can instrument it.

console = Console(soft_wrap=True)
app = cyclopts.App(name="tests.fuzz.decoders", help="Give what reads a sender's bytes what no sender should send.")


@app.default
def run(*names: str, seconds: int = 60, seed: int = 1, out: Path = _FOLDER) -> int:
    """Try some of the decoders, or all of them, each in a process of its own.

    Args:
        names: which.
        seconds: for each of them.
        seed: of the mutations.
        out: where the corpora go, and what was found.
    """
    failed: list[str] = []
    for decoder in names or _NAMES:
        command = [
            sys.executable,
            "-m",
            "tests.fuzz.decoders",
            "one",
            decoder,
            "--seconds",
            str(seconds),
            "--seed",
            str(seed),
        ]
        status = subprocess.run([*command, "--out", str(out)], check=False).returncode
        console.print(f"{decoder}: {'nothing found' if status == 0 else f'status {status}'}")
        failed += [decoder] * (status != 0)
    return 1 if failed else 0


@app.command
def one(decoder: str, *, seconds: int, seed: int, out: Path) -> int:
    """Try one decoder in this process."""
    folder = out / decoder
    folder.mkdir(parents=True, exist_ok=True)
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["app", "tasks"]):
        from tests.fuzz.decoding import corpus, decoders, tried
    decode = decoders()[decoder]
    for data in corpus(decoder):
        (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    options = [f"-max_total_time={seconds}", f"-timeout={_MOST_SECONDS}", "-rss_limit_mb=4096", f"-seed={seed}"]
    options += ["-print_final_stats=1", "-verbosity=0", f"-artifact_prefix={out}/{decoder}-", str(folder)]
    atheris.Setup([sys.argv[0], *options], lambda data: tried(decode, data))
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(app())
