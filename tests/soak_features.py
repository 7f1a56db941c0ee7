"""Use every feature at once for an hour, kill PostgreSQL twice, and watch memory, open files and threads.

Usage: ``python -m tests.soak_features --minutes 60 --seed 7`` (``make soak-features``). Requests with API keys are
recorded in PostgreSQL; drift, a shadow version, tiles, an isolated model and streams run beside them. The exit status
is 1 as for `tests.soak`, or if the server has grown from the second to the last fifth of the time.
"""

import argparse
import asyncio
import json
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

import asyncpg
import cv2
import httpx
import msgspec
import numpy as np

from tests.soak import MODELS, RECORDED, Fault, Send, Soak, Window, senders
from tests.support.servers.postgres import PostgresServer, run_postgres
from tests.support.servers.server_process import ROOT

SENDERS = 3
SAMPLE_SECONDS = 5
DOWN_SECONDS = 10
BASELINE_IMAGES = 80
MAX_GROWTH = {"MiB": 32.0, "files": 16.0, "threads": 8.0}
"""What the server may grow between the medians of two fifths: caches and pools fill late."""


class Sample(msgspec.Struct, frozen=True):
    """What the server uses: resident memory in MiB, open files and threads."""

    memory: float
    files: int
    threads: int


class FeatureSoak(Soak):
    """A run with all features.

    Attributes:
        samples: what the server used, every `SAMPLE_SECONDS`.
    """

    fixed = MappingProxyType({"chariot-v2-kserve": "detector", "tiles": "detector", "stream": "vlm"})

    def __init__(self, root: Path, seed: int, database: str) -> None:
        keys = root / "keys.json"
        printed = charioteer("keys", "add", "soak", "--file", str(keys), "--permissions", "infer,read,admin")
        key = next(word for word in printed.split() if re.fullmatch(r"[\w-]{20,}", word))
        super().__init__(root, seed, 60, {"authorization": f"Bearer {key}"})
        shutil.copytree(MODELS / "vlm", self.models / "vlm")
        detector = self.models / "detector"
        detector.rename(root / "1")
        for version in ("1", "2"):
            shutil.copytree(root / "1", detector / version)
        settings: dict[str, object] = {"versions": ["1"], "shadow": {"version": "2", "share": 0.5}}
        (detector / "model-settings.json").write_text(json.dumps(settings))
        baseline = detector / "1" / "drift-baseline.npz"
        write_images(root / "images", seed)
        charioteer("drift", "baseline", str(root / "images"), "--out", str(baseline), "--model", str(root / "1"))
        self.options = (
            "--record", database, "--record-images", str(root / "recorded"), "--api-keys", str(keys),
            "--drift", "--drift-window", "200", "--drift-per-second", "5",
        )  # fmt: skip
        self.samples: list[Sample] = []
        self._database = database

    def recorded(self) -> Mapping[str, int]:
        return dict(asyncio.run(fetch(self._database)))

    def surfaces(self) -> Mapping[str, Send]:
        return {
            **super().surfaces(),
            "tiles": lambda model, _, key: self.infer_image(model, key, {"tile": 160}),
            "stream": lambda model, _, key: self._stream(model, key),
        }

    def watch(self) -> None:
        """Take samples until the run is over."""
        while not self.over.wait(SAMPLE_SECONDS):
            process = Path(f"/proc/{self.server.process.pid}")
            pages = int((process / "statm").read_text().split()[1])
            files, threads = (len(list((process / name).iterdir())) for name in ("fd", "task"))
            self.samples.append(Sample(pages * 4096 / 2**20, files, threads))

    def growth(self) -> Mapping[str, tuple[float, float]]:
        """Return the medians of the second and of the last fifth of the samples."""
        fifth = max(len(self.samples) // 5, 1)
        early, late = self.samples[fifth : 2 * fifth] or self.samples[-1:], self.samples[-fifth:]
        columns = zip(map(msgspec.structs.astuple, early), map(msgspec.structs.astuple, late), strict=False)
        by_name = zip(*(zip(*pair, strict=True) for pair in columns), strict=True)
        return {
            name: (statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs))
            for name, pairs in zip(MAX_GROWTH, by_name, strict=True)
        }

    def _stream(self, model: str, key: str) -> str:
        """Return the text of a streamed answer to a question about the image."""
        url = f"data:image/jpeg;base64,{self.image}"
        parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What shape is it?"}]
        body = {"model": model, "stream": True, "messages": [{"role": "user", "content": parts}], "max_tokens": 8}
        events = self._post("/v1/chat/completions", body, key).raise_for_status().text.split("\n\n")
        chunks: list[Any] = [
            json.loads(event.removeprefix("data: ")) for event in events if event.startswith("data: {")
        ]
        if any("error" in chunk for chunk in chunks):
            # The status was sent before the answer could not be recorded.
            httpx.Response(503, request=httpx.Request("POST", "http://stream")).raise_for_status()
        return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


async def fetch(database: str) -> Sequence[tuple[str, int]]:
    """Return the number of recorded inferences by request id."""
    connection: Any = await asyncpg.connect(database)
    try:
        return [tuple(row) for row in await connection.fetch(RECORDED)]
    finally:
        await connection.close()


def charioteer(*arguments: str) -> str:
    """Run a command, and return what it prints."""
    command = [sys.executable, "-m", "charioteer", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def write_images(folder: Path, seed: int) -> None:
    """Write noisy versions of the image that is sent, for the baseline of drift."""
    folder.mkdir()
    chance = np.random.default_rng(seed)
    scene: Any = cv2.imread(str(ROOT / "fixtures" / "images" / "scene.jpg"))
    for number in range(BASELINE_IMAGES):
        noisy = np.clip(scene + chance.normal(0, 6, scene.shape), 0, 255).astype(np.uint8)
        cv2.imwrite(str(folder / f"{number}.png"), noisy)


def kill_of(postgres: PostgresServer) -> Callable[[Soak, random.Random], None]:
    def inject(_: Soak, __: random.Random) -> None:
        postgres.kill()
        time.sleep(DOWN_SECONDS)
        postgres.start()

    return inject


def run(seconds: float, seed: int) -> tuple[FeatureSoak, Sequence[str]]:
    """Run for some time, kill PostgreSQL after a third and two thirds; return the run and its failures."""
    with tempfile.TemporaryDirectory() as folder, run_postgres(lossy=False) as postgres:
        soak = FeatureSoak(Path(folder), seed, postgres.create_database())
        fault = Fault(inject=kill_of(postgres), statuses=frozenset({503, 429}))
        with closing(soak):
            soak.start()
            soak.learn()
            watching = threading.Thread(target=soak.watch)
            watching.start()
            with senders(soak, SENDERS, soak.over.is_set):
                try:
                    for _ in range(2):
                        time.sleep(seconds / 3)
                        soak.cause("PostgreSQL killed and restored", random.Random(seed), fault)
                    time.sleep(seconds / 3)
                finally:
                    soak.over.set()
            watching.join()
            soak.stop(15, 0)
        failures = list(soak.failures())
        failures += [
            f"{name}: {early:.0f} became {late:.0f}"
            for name, (early, late) in soak.growth().items()
            if late > early + MAX_GROWTH[name]
        ]
        return soak, failures


def main() -> None:
    """Run, and print requests by surface and status, the growth of the server, the outages, and every failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak_features", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    arguments = parser.parse_args()
    soak, failures = run(arguments.minutes * 60, arguments.seed)
    for surface in soak.surfaces():
        statuses = Counter(entry.status for entry in soak.entries if entry.surface == surface)
        print(f"{surface:20}", ", ".join(f"{count} x {status or 'none'}" for status, count in statuses.most_common()))
    for name, (early, late) in soak.growth().items():
        print(f"{name:20} {early:.0f} in the second fifth, {late:.0f} in the last")
    windows: Sequence[Window] = soak.windows
    print(f"{'outages':20}", ", ".join(f"recovered after {window.recovery:.1f} s" for window in windows))
    print(*[f"FAILED  {failure}" for failure in failures[:50]], "FAILED" if failures else "PASSED", sep="\n")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
