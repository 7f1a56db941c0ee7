"""Compare JPEG decoders, each alone and as a part of a whole request."""

import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from tests.benchmarks.serving.peer_servers import install
from tests.benchmarks.serving.processes import ROOT
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.tables.encodings import chariot
from tests.benchmarks.serving.workload import Workload

_BASE = "OpenCV"
_HALF = ", half"


def decoders(workload: Workload, rounds: int, calls: int) -> Section:
    """Decode the photographs to full and half size, and compare the difference to OpenCV with a request's cost."""
    programs = install("decoders")
    rows: list[list[Cell]] = []
    for size, image in workload.images.items():
        times = _times(programs, workload.model("small"), image, rounds, calls)
        request = statistics.median(times.pop("request"))
        for name, measured in times.items():
            base = times[f"{_BASE}{_HALF}" if name.endswith(_HALF) else _BASE]
            ratio = statistics.median(measured) / statistics.median(base)
            gains = sorted((before - after) / request for before, after in zip(base, measured, strict=True))
            gain = f"{statistics.median(gains):.1%} ({gains[0]:.1%} to {gains[-1]:.1%})"
            decoded = "1/2 of each side" if name.endswith(_HALF) else "full size"
            rows.append([size, name.removesuffix(_HALF), decoded, statistics.median(measured), ratio, gain])
    about = (
        "CPU milliseconds to decode a JPEG to RGB in one thread: the median of "
        f"{rounds} rounds of {calls} calls, in which the decoders take turns. The gain is the difference to OpenCV as "
        "a share of the floor's whole request, with the lowest and highest of the rounds. The floor runs the small "
        "model, so its request is the cheapest of the tables. imagecodecs has no reduced decoding."
    )
    columns = ["image", "decoder", "decoded", "CPU ms", f"ratio to {_BASE}", "gain of a request"]
    return Section(title="JPEG decoders", about=about, columns=columns, rows=rows)


def _times(programs: Path, model: Path, image: Path, rounds: int, calls: int) -> dict[str, list[float]]:
    with tempfile.NamedTemporaryFile() as body:
        Path(body.name).write_bytes(chariot(0, "small", image).body)
        command = [programs / "python", "-m", "tests.benchmarks.serving.others.decode_jpegs", model, body.name, image]
        output = subprocess.run(
            [*map(str, command), str(rounds), str(calls)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
        ).stdout
    return json.loads(output)
