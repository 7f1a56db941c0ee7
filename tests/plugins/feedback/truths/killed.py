"""Kill servers while truths arrive: ``python -m tests.plugins.feedback.truths.killed STORE KILLS``.

STORE is a new file, or the address of an empty database. The program fails if a truth is lost that was acknowledged.
"""

import random
import sys
import threading
from collections.abc import Sequence

import httpx

from app.plugins.recording.service import store_at
from app.plugins.recording.stores.rows import to_rows
from app.plugins.recording.stores.store import parse_dsn
from tests.plugins.feedback.truths.recorded import CAR, detection
from tests.plugins.recording.contents import contents
from tests.support.servers.server_process import ROOT, ServerProcess

_CLIENTS = 4
_INFERENCES = 5
_MAX_ACKNOWLEDGED = 40


def main() -> None:
    """Kill a server again and again, and print how many truths were acknowledged and stored."""
    url, kills = sys.argv[1:]
    recordings = store_at(parse_dsn(url))
    recordings.open()
    recordings.write([to_rows(detection(f"{number}", CAR)) for number in range(_INFERENCES)])
    recordings.close()
    rng, acknowledged = random.Random(0), list[str]()
    for turn in range(int(kills)):
        acknowledged += _send_until_killed(url, turn, rng.randint(1, _MAX_ACKNOWLEDGED))
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


def _send_until_killed(url: str, turn: int, count: int) -> Sequence[str]:
    """Send truths by several clients, kill the server after `count` answers, and return what it acknowledged."""
    model = str(ROOT / "fixtures" / "models" / "detector")
    server = ServerProcess("--model", model, "--record", url, "--serve-truth")
    acknowledged: list[str] = []
    enough = threading.Event()

    def send(client: int) -> None:
        number = 0
        with httpx.Client(base_url=address, timeout=60) as http:
            while True:
                comment = f"{turn}-{client}-{number}"
                body = {"records": [CAR], "comment": comment}
                try:
                    http.put(f"/inferences/{number % _INFERENCES}-0-0/truth", json=body).raise_for_status()
                except httpx.TransportError:
                    return
                acknowledged.append(comment)
                if len(acknowledged) >= count:
                    enough.set()
                number += 1

    try:
        address = server.address
        threads = [threading.Thread(target=send, args=(client,)) for client in range(_CLIENTS)]
        for thread in threads:
            thread.start()
        assert enough.wait(60), "the server acknowledges no truths"
    finally:
        server.process.kill()
        server.wait()
    for thread in threads:
        thread.join()
    return acknowledged


if __name__ == "__main__":
    main()
