"""Fuzz the decoders of request bytes in this process, guided by coverage (atheris, the extra `fuzz`).

Any exception except `InferenceError` is a finding, and so is an input that takes more than twenty seconds.
"""

import hashlib
import importlib
import subprocess
import sys
from pathlib import Path

import cyclopts
from rich.console import Console

_FOLDER = Path(__file__).parents[2] / "build" / "fuzz" / "decoders"
_MAX_SECONDS = 20
NAMES = (
    "bytes-elements", "v2-binary", "v2-protobuf", "grps-protobuf", "grps-json", "chariot-json", "tensorflow-json",
    "image",
)  # fmt: skip
# Do not import the server before atheris can instrument it.

console = Console(soft_wrap=True)
app = cyclopts.App(name="tests.fuzz.decoders", help="Pass malformed bytes to the decoders of request data.")


@app.default
def run(*names: str, seconds: int = 60, seed: int = 1, out: Path = _FOLDER) -> int:
    """Fuzz some or all decoders, each in its own process.

    Args:
        names: names of decoders; all by default.
        seconds: duration for each decoder.
        seed: seed of the mutations.
        out: folder for corpora and findings.
    """
    failed: list[str] = []
    for decoder in names or NAMES:
        command = [sys.executable, "-m", "tests.fuzz.decoders", "one", decoder]
        options = ["--seconds", str(seconds), "--seed", str(seed), "--out", str(out)]
        status = subprocess.run([*command, *options], check=False).returncode
        console.print(f"{decoder}: {'nothing found' if status == 0 else f'status {status}'}")
        failed += [decoder] * (status != 0)
    return 1 if failed else 0


@app.command
def one(decoder: str, *, seconds: int, seed: int, out: Path) -> int:
    folder = out / decoder
    folder.mkdir(parents=True, exist_ok=True)
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["app", "tasks"]):
        from tests.fuzz.decoding import corpus, decode_or_reject, decoders
    decode = decoders()[decoder]
    for data in corpus(decoder):
        (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    options = [f"-max_total_time={seconds}", f"-timeout={_MAX_SECONDS}", "-rss_limit_mb=4096", f"-seed={seed}"]
    options += ["-print_final_stats=1", "-verbosity=0", f"-artifact_prefix={out}/{decoder}-", str(folder)]
    atheris.Setup([sys.argv[0], *options], lambda data: decode_or_reject(decode, data))
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(app())
