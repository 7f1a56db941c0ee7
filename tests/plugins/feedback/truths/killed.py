"""Kill writers of truths while they write: ``python -m tests.plugins.feedback.truths.killed STORE KILLS``.

Each writer runs in a forked child, so that modules are imported only once. Prints the comment of each truth that was
acknowledged, one on each line.
"""

import os
import random
import sys
from functools import partial
from typing import NoReturn

from app.plugins.feedback.truths.right_answer import RightAnswer
from app.plugins.feedback.truths.truth_store import TruthStore
from app.plugins.recording.service import store_at
from app.plugins.recording.stores.rows import to_rows
from app.plugins.recording.stores.store import parse_dsn
from tests.plugins.feedback.truths.recorded import CAR, detection
from tests.support.killing import run_until_killed


def main() -> None:
    store, kills = sys.argv[1:]
    recordings = store_at(parse_dsn(store))
    recordings.open()
    recordings.write([to_rows(detection(f"{number}", CAR)) for number in range(5)])
    recordings.close()
    rng = random.Random(0)
    for turn in range(int(kills)):
        sys.stdout.write(run_until_killed(partial(_write, store, turn), rng.randint(0, 10)))


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
