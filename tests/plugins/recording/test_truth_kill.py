"""Acknowledged truths survive kills of their process.

Run as ``python -m tests.plugins.recording.test_truth_kill STORE KILLS``, with a new file or the address of an empty
database, this module prints how many truths were lost, and fails if one was.
"""

import itertools
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import NoReturn

import pytest

from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.service import store_at
from app.plugins.recording.stores.rows import to_rows
from app.plugins.recording.stores.store import parse_dsn
from app.plugins.recording.truth_store import RightAnswer, TruthStore
from tests.support.data.recorded_rows import recorded_inference
from tests.support.killing import run_until_killed
from tests.support.servers.server_process import ROOT

_KILLS = 3
_WRITERS = 4


@pytest.mark.slow
def test_acknowledged_truths_survive_kills(url: str) -> None:
    command = [sys.executable, "-m", "tests.plugins.recording.test_truth_kill", url, str(_KILLS)]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert completed.returncode == 0, completed.stdout + completed.stderr


def main() -> None:
    """Kill writers again and again, and check that each inference has its last acknowledged truth, or a later one."""
    url, kills = sys.argv[1:]
    with closing(store_at(parse_dsn(url))) as recordings:
        recordings.open()
        recordings.write([to_rows(recorded_inference(f"{number}")) for number in range(_WRITERS)])
    reader, rng, acknowledged, lost = RecordingReader(parse_dsn(url)), random.Random(0), 0, 0
    for turn in range(int(kills)):
        numbers = run_until_killed(partial(_write, url, turn), rng.randint(1, 40)).split()
        acknowledged += len(numbers)
        for comment in numbers:
            writer, number = comment.split("-")
            truth = reader.get(writer).truth
            stored = truth.comment.split("-") if truth else ["-1", "-1"]
            lost += [int(part) for part in stored] < [turn, int(number)]
    sys.stdout.write(f"{kills} kills: {acknowledged} truths acknowledged, {lost} lost\n")
    sys.exit(bool(lost) or not acknowledged)


def _write(url: str, turn: int, acknowledgements: int) -> NoReturn:
    def write(writer: int) -> None:
        truths = TruthStore(parse_dsn(url))
        for number in itertools.count():
            truths.put(f"{writer}", RightAnswer(verdict="right", comment=f"{turn}-{number}"))
            os.write(acknowledgements, f"{writer}-{number}\n".encode())

    with ThreadPoolExecutor(_WRITERS) as threads:
        list(threads.map(write, range(_WRITERS)))
    os._exit(1)


if __name__ == "__main__":
    main()
