"""Acknowledged truths survive kills of their process.

Run as ``python -m tests.plugins.feedback.truths.test_kill STORE KILLS``, with a new file or the address of an empty
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

from app.plugins.feedback.truths.right_answer import RightAnswer
from app.plugins.feedback.truths.truth_store import TruthStore
from app.plugins.recording.service import store_at
from app.plugins.recording.stores.rows import to_rows
from app.plugins.recording.stores.store import parse_dsn
from tests.plugins.feedback.truths.recorded import CAR, detection
from tests.plugins.recording.contents import contents
from tests.support.killing import run_until_killed
from tests.support.servers.server_process import ROOT

_KILLS = 3
_WRITERS = 4
_INFERENCES = 5


@pytest.mark.slow
def test_acknowledged_truths_survive_kills(url: str) -> None:
    command = [sys.executable, "-m", "tests.plugins.feedback.truths.test_kill", url, str(_KILLS)]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert completed.returncode == 0, completed.stdout + completed.stderr


def main() -> None:
    """Kill writers again and again, and check that acknowledged truths are stored with complete revisions."""
    url, kills = sys.argv[1:]
    with closing(store_at(parse_dsn(url))) as recordings:
        recordings.open()
        recordings.write([to_rows(detection(f"{number}", CAR)) for number in range(_INFERENCES)])
    rng, acknowledged = random.Random(0), list[str]()
    for turn in range(int(kills)):
        acknowledged += run_until_killed(partial(_write, url, turn), rng.randint(1, 40)).split()
    rows = contents(url, "inference_truths")
    lost = {*acknowledged} - {row["comment"] for row in rows}
    sys.stdout.write(f"{kills} kills: {len(acknowledged)} truths acknowledged, {len(rows)} stored, {len(lost)} lost\n")
    revisions: dict[int, list[tuple[int, bool]]] = {}
    for row in rows:
        revisions.setdefault(row["number"], []).append((row["revision"], bool(row["current"])))
    # Revisions are complete, and only the newest one is current.
    whole = all(
        sorted(found) == [(number, number == len(found)) for number in range(1, len(found) + 1)]
        for found in revisions.values()
    )
    sys.exit(bool(lost) or not whole or not acknowledged)


def _write(url: str, turn: int, acknowledgements: int) -> NoReturn:
    def write(writer: int) -> None:
        truths = TruthStore(parse_dsn(url))
        for number in itertools.count():
            comment = f"{turn}-{writer}-{number}"
            truths.put(f"{number % _INFERENCES}-0-0", RightAnswer(records=[CAR], comment=comment), "")
            os.write(acknowledgements, f"{comment}\n".encode())

    with ThreadPoolExecutor(_WRITERS) as threads:
        list(threads.map(write, range(_WRITERS)))
    os._exit(1)


if __name__ == "__main__":
    main()
