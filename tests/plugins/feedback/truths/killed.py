"""Kill writers of truths while they write: ``python -m tests.plugins.feedback.truths.killed STORE KILLS``.

Each writer runs in a forked child, so that modules are imported only once. Prints the comment of each truth that was
acknowledged, one on each line.
"""

import os
import random
import signal
import sys
from typing import NoReturn

from app.plugins.feedback.truths.right_answer import RightAnswer
from app.plugins.feedback.truths.truth_store import TruthStore
from app.plugins.recording.service import store_at
from app.plugins.recording.stores.rows import to_rows
from app.plugins.recording.stores.store import parse_dsn
from tests.plugins.feedback.truths.recorded import CAR, detection


def main() -> None:
    store, kills = sys.argv[1:]
    recordings = store_at(parse_dsn(store))
    recordings.open()
    recordings.write([to_rows(detection(f"{number}", CAR)) for number in range(5)])
    recordings.close()
    rng = random.Random(0)
    for turn in range(int(kills)):
        sys.stdout.write(_write_until_killed(store, turn, rng.randint(0, 10)))


def _write_until_killed(store: str, turn: int, min_acknowledged: int) -> str:
    """Start a writer, kill it after `min_acknowledged` truths, and return what it acknowledged."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        _write(store, turn, write_end)
    os.close(write_end)
    acknowledged = b""
    while acknowledged.count(b"\n") < min_acknowledged:
        data = os.read(read_end, 4096)
        assert data, "the writer ended by itself"
        acknowledged += data
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while data := os.read(read_end, 65536):
        acknowledged += data
    os.close(read_end)
    return acknowledged.decode()


def _write(store: str, turn: int, acknowledgements: int) -> NoReturn:
    truths = TruthStore(parse_dsn(store))
    number = 0
    while True:
        comment = f"{turn}-{number}"
        truths.put(f"{number % 5}-0-0", RightAnswer(records=[CAR], comment=comment), "")
        os.write(acknowledgements, f"{comment}\n".encode())
        number += 1


if __name__ == "__main__":
    main()
