"""The floor's work behind a bare ASGI handler in uvicorn: no routes, limits, logs, metrics or authentication."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from app.core.server.process_setup import configure_process
from tests.benchmarks.serving.floor import Chain

_HEADERS = [(b"content-type", b"application/json")]

configure_process()
_chains = {name: Chain(Path(file)) for name, file in (item.split("=") for item in os.environ["MODELS"].split(","))}
_pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))


async def app(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Answer a POST to /<model> with the floor's answer, and any other request with an empty one."""
    content = b""
    if scope["method"] == "POST":
        body, more = bytearray(), True
        while more:
            message = await receive()
            body += message["body"]
            more = message["more_body"]
        chain = _chains[scope["path"][1:]]
        content = await asyncio.get_running_loop().run_in_executor(_pool, chain, bytes(body))
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": content})
