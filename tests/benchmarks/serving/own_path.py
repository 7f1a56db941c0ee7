"""Measure our code from request body to response body, in one thread, without HTTP and observers."""

import sys
import time
from pathlib import Path

from app.core.assembly.discovery import model_at
from app.core.assembly.models import load
from app.core.engine.engine import Engine
from app.core.engine.models.registry import Registry
from app.core.engine.models.repository import Repository
from app.core.protocols.chariot_v2_kserve.codec import decode, encode
from app.core.server.process_setup import configure_process
from tasks.inference.limits import Limits


def main(model: str, body: str, requests: str) -> None:
    """Answer the request in the file `body` repeatedly, and print the CPU milliseconds for each."""
    configure_process()
    (source,) = model_at(Path(model))
    registry = Registry([source])
    registry.load(source, load)
    engine = Engine(Repository(registry, lambda: [source], load), [], Limits(), 1)
    content, count = Path(body).read_bytes(), int(requests)

    def answer() -> bytes:
        return encode(engine.infer(decode(content, model_name=source.name, model_version=None, request_id="1")))

    for _ in range(20):
        answer()
    started = time.process_time()
    for _ in range(count):
        answer()
    print((time.process_time() - started) / count * 1000)
    engine.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
