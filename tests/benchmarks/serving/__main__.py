"""Measure the server, print tables and write them into RESULTS.md (``make bench``)."""

import argparse
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path

import onnxruntime
from msgspec.structs import replace

from tests.benchmarks.serving.processes import processor
from tests.benchmarks.serving.section import Section, as_markdown
from tests.benchmarks.serving.tables.isolation import isolation
from tests.benchmarks.serving.tables.overhead import chat, overhead, protocols, start
from tests.benchmarks.serving.tables.overload import overload
from tests.benchmarks.serving.tables.peers import peers
from tests.benchmarks.serving.tables.resizing import resizing
from tests.benchmarks.serving.tables.scale import scale
from tests.benchmarks.serving.tables.server_processes import server_processes
from tests.benchmarks.serving.tables.tuned import tuned
from tests.benchmarks.serving.workload import Workload, make_workload

_DOCUMENT = Path(__file__).with_name("RESULTS.md")
_MARK = "<!-- Everything below is written by `make bench`. -->"
_MACHINE = f"Measured on {len(os.sched_getaffinity(0))} cores, {processor()}."
"""In each section, because sections are measured again one at a time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=300, help="in each round")
    parser.add_argument("--scenes", type=int, default=200, help="that accuracy is measured on")
    parser.add_argument("--write", action="store_true", help="the tables into RESULTS.md")
    parser.add_argument("--only", nargs="*", help="names of measurements")
    options = parser.parse_args()
    rounds, requests = options.rounds, options.requests
    measurements: dict[str, Callable[[Workload], Section]] = {
        "overhead": lambda workload: overhead(workload, rounds, requests),
        "protocols": lambda workload: protocols(workload, rounds, requests),
        "chat": lambda workload: chat(workload, rounds, requests),
        "start": lambda workload: start(workload, rounds),
        "resizing": lambda workload: resizing(workload, rounds, options.scenes),
        "tuned": lambda workload: tuned(workload, rounds, requests, options.scenes),
        "isolation": lambda workload: isolation(workload, rounds, requests),
        "overload": lambda workload: overload(workload, 10),
        "processes": lambda workload: server_processes(workload, 10),
        "scale": lambda workload: scale(workload, max(1, rounds // 2), requests),
        "peers": lambda workload: peers(workload, rounds, requests),
    }
    names = options.only or list(measurements)
    if unknown := set(names) - set(measurements):
        parser.error(f"known measurements are {', '.join(measurements)}, not {', '.join(unknown)}")
    with tempfile.TemporaryDirectory() as folder:
        workload = make_workload(Path(folder))
        print(header := _header(workload), flush=True)
        for name in names:
            section = measurements[name](workload)
            text = as_markdown(replace(section, about=f"{section.about} {_MACHINE}"))
            print(f"\n{text}", flush=True)
            if options.write:
                _write(header, section.title, text)


def _write(header: str, title: str, text: str) -> None:
    """Replace the section with the same title in the document, or add it."""
    introduction, _, before = _DOCUMENT.read_text().partition(_MARK)
    sections = {section.partition("\n")[0]: f"## {section.rstrip()}\n" for section in before.split("\n## ")[1:]}
    sections[title] = text
    _DOCUMENT.write_text("\n".join([f"{introduction}{_MARK}\n", header, "", *sections.values()]))


def _header(workload: Workload) -> str:
    models = ", ".join(f"{name} {flops:.0f} MFLOPs" for name, flops in workload.megaflops.items())
    images = ", ".join(f"{name} {file.stat().st_size / 1000:.0f} kB" for name, file in workload.images.items())
    return (
        f"Python {platform.python_version()}, ONNX Runtime {onnxruntime.__version__}. Models: MobileNetV2 with random "
        f"weights, {models}, 224x224. Images: {images}, as JPEG."
    )


if __name__ == "__main__":
    main()
