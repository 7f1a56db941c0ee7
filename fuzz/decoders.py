"""`python -m fuzz.decoders`: what reads a sender's bytes, in this process, led by coverage (atheris, the extra `fuzz`).

Where atheris has no wheel the same decoders are given the same corpus after mutations of ours. Whatever is not an
`InferenceError` is a finding; so is an input that takes more than twenty seconds.
"""

import hashlib
import importlib
import json
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from random import Random

import cyclopts
from rich.console import Console

_FOLDER = Path(__file__).parents[1] / "build" / "fuzz" / "decoders"
_MOST_SECONDS = 20
_NAMES = (
    "bytes-elements", "v2-binary", "v2-protobuf", "grps-protobuf", "grps-json", "chariot-json", "tensorflow-json",
    "image",
)  # fmt: skip
# Nothing of the server is imported before atheris can instrument it.

console = Console(soft_wrap=True)
app = cyclopts.App(name="fuzz.decoders", help="Give what reads a sender's bytes what no sender should send.")


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
            "fuzz.decoders",
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
    if find_spec("atheris") is None:
        return _without_coverage(decoder, seconds, seed, out)
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["app", "tasks"]):
        from fuzz.decoding import corpus, decoders, tried
    decode = decoders()[decoder]
    for data in corpus(decoder):
        (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    options = [f"-max_total_time={seconds}", f"-timeout={_MOST_SECONDS}", "-rss_limit_mb=4096", f"-seed={seed}"]
    options += ["-print_final_stats=1", "-verbosity=0", f"-artifact_prefix={out}/{decoder}-", str(folder)]
    atheris.Setup([sys.argv[0], *options], lambda data: tried(decode, data))
    atheris.Fuzz()
    return 0


def _without_coverage(decoder: str, seconds: int, seed: int, out: Path) -> int:
    from fuzz.decoding import corpus, decoders, mutated_input, tried

    decode, random, seeds = decoders()[decoder], Random(seed), list(corpus(decoder))
    until, count = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        data = random.choice(seeds)
        for _ in range(random.choice((1, 2, 4))):
            data = mutated_input(decoder, data, random)
        start = time.monotonic()
        try:
            tried(decode, data)
        except BaseException as error:
            (out / f"{decoder}-crash").write_bytes(data)
            console.print(
                json.dumps({"decoder": decoder, "input": count, "error": f"{type(error).__name__}: {error}"[:300]})
            )
            raise
        if time.monotonic() - start > _MOST_SECONDS:
            (out / f"{decoder}-timeout").write_bytes(data)
            return 1
        count += 1
    console.print(f"{decoder}: {count} inputs, without coverage")
    return 0


if __name__ == "__main__":
    sys.exit(app())
