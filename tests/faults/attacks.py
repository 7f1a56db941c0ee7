"""Attack the connections of a server, and print what happens: ``python -m tests.faults.attacks [CHECKOUT ...]``.

Each checkout, by default this one, is a column. All of them run with this Python, one after the other.
"""

import json
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from tests.benchmarks.serving.processes import ROOT, run_server
from tests.support.polling import wait_until
from tests.support.servers.ports import reserve_ports

_OPTIONS = "--header-timeout 2 --body-timeout 2 --write-timeout 2 --keep-alive-timeout 3 --log-format json --no-grpc"
_MODEL = """
import time
import numpy as np

class Slow:
    task_type = "TENSOR"
    inputs = {"seconds_and_size": ("FP64", (2,))}
    outputs = {"output": ("FP64", (-1,))}

    def predict(self, tensors):
        seconds, size = tensors["seconds_and_size"]
        time.sleep(seconds)
        return {"output": np.zeros(int(size))}
"""
_HALF_HEADS, _RESETS = 8000, 500
_TIMEOUT_SECONDS = 30
_REFUSED = "refused"
"""The path in the request behind another one, which the server must not read."""


def _head(*fields: str, start: str = "POST / HTTP/1.1") -> bytes:
    return "\r\n".join((start, "Host: 127.0.0.1", *fields, "", "")).encode()


def _infer(seconds: float, size: int = 1) -> bytes:
    tensor = {"name": "seconds_and_size", "datatype": "FP64", "shape": [2], "data": [seconds, size]}
    body = json.dumps({"inputs": [tensor]})
    return _head(f"Content-Length: {len(body)}", start="POST /v2/models/slow/infer HTTP/1.1") + body.encode()


_SMUGGLED = _head("Connection: close", start=f"GET /{_REFUSED} HTTP/1.1")
_CHUNKS = b"0\r\n\r\n"
_SMUGGLING: Mapping[str, bytes] = {
    "length and chunks": _head("Content-Length: 3", "Transfer-Encoding: chunked") + _CHUNKS,
    "two lengths": _head("Content-Length: 3", "Content-Length: 4") + b"abc",
    "chunks in HTTP/1.0": _head("Transfer-Encoding: chunked", start="POST / HTTP/1.0") + _CHUNKS,
    "bare line feeds": b"POST / HTTP/1.1\nHost: 127.0.0.1\n\n",
    "two hosts": _head("Host: other"),
    "`gzip, chunked`": _head("Transfer-Encoding: gzip, chunked") + _CHUNKS,
    "`xchunked`": _head("Transfer-Encoding: xchunked") + _CHUNKS,
    "`Upgrade` with a body that looks like a request": _head(
        "Connection: Upgrade", "Upgrade: h2c", f"Content-Length: {len(_SMUGGLED)}"
    ),
}


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_SECONDS)


def _received(connection: socket.socket) -> tuple[bytes, str]:
    """Return what the server sends until it closes or resets the connection, and which of both it does."""
    received = b""
    try:
        while chunk := connection.recv(65536):
            received += chunk
    except TimeoutError:
        return received, "open"
    except ConnectionError:
        return received, "reset"
    return received, "closed"


def _statuses(received: bytes) -> list[str]:
    return [part[:3].decode() for part in received.split(b"HTTP/1.1 ")[1:]]


def _outcome(port: int, request: bytes, drop: bytes = b"") -> str:
    """Return the answer to a request that is not complete, and how long the server waits for the rest.

    The client sends `drop` every tenth of a second until then.
    """
    with _connect(port) as connection:
        began = time.perf_counter()
        with suppress(ConnectionError):
            connection.sendall(request)
        connection.settimeout(0.1)
        received = b""
        with suppress(ConnectionError):
            while time.perf_counter() - began < _TIMEOUT_SECONDS:
                try:
                    received = connection.recv(65536)
                    break
                except TimeoutError:
                    connection.send(drop)
        seconds = time.perf_counter() - began
        connection.settimeout(_TIMEOUT_SECONDS)
        received += _received(connection)[0]
    return f"{' '.join(_statuses(received)) or 'closed'} after {seconds:.1f} s"


def _unread(port: int) -> str:
    """Return when the server gives up on a client that reads no answer."""
    with _connect(port) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        began = time.perf_counter()
        connection.sendall(_infer(0, 200_000) * 61)
        try:
            wait_until(partial(_only_one_connected, port), _TIMEOUT_SECONDS)
        except AssertionError:
            return "open"
        return f"ended after {time.perf_counter() - began:.1f} s"


def _only_one_connected(port: int) -> bool:
    with _connect(port) as connection:
        connection.sendall(_head("Connection: close", start="GET /metrics HTTP/1.1"))
        return b"\ncharioteer_connections 1.0\n" in _received(connection)[0]


def _half_closed(port: int, request: bytes, count: int) -> str:
    with _connect(port) as connection:
        connection.sendall(request * count)
        connection.shutdown(socket.SHUT_WR)
        return f"{_statuses(_received(connection)[0]).count('200')} of {count} answered"


def _smuggled(port: int, request: bytes) -> str:
    with _connect(port) as connection:
        connection.sendall(request + _SMUGGLED)
        received, end = _received(connection)
    # Its answer names the path that is missing.
    return f"{' '.join([*_statuses(received), end])}{', the next request is read' * (_REFUSED.encode() in received)}"


def _probe(port: int) -> str:
    """Return the longest of a few probes on connections of their own."""
    seconds: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        with _connect(port) as connection:
            connection.sendall(_head("Connection: close", start="GET /healthz HTTP/1.1"))
            if _statuses(_received(connection)[0]) != ["200"]:
                return "a probe fails"
        seconds.append(time.perf_counter() - began)
    return f"a probe takes {max(seconds) * 1000:.0f} ms"


def _among_half_heads(port: int) -> str:
    with ExitStack() as stack:
        for _ in range(_HALF_HEADS):
            stack.enter_context(_connect(port)).sendall(_head()[:-2])
        return _probe(port)


def _after_resets(port: int) -> str:
    for _ in range(_RESETS):
        with _connect(port) as connection:
            connection.sendall(_infer(0)[:-1])
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return _probe(port)


_BODY = _head("Content-Length: 9", start="POST /v2/models/slow/infer HTTP/1.1")
_ATTACKS: Mapping[str, Callable[[int], str]] = {
    "silence": partial(_outcome, request=b""),
    "half a head": partial(_outcome, request=_head()[:-2]),
    "a head, a byte every 0.1 s": partial(_outcome, request=_head()[:-2], drop=b"x"),
    "1 MB of head": partial(_outcome, request=_head()[:-2] + b"X: y\r\n" * 170_000),
    "a body that stops": partial(_outcome, request=_BODY + b"abc"),
    "a body, a byte every 0.1 s": partial(
        _outcome, request=_head("Content-Length: 999", start="POST /v2/models/slow/infer HTTP/1.1"), drop=b"x"
    ),
    "61 pipelined inferences with long answers that the client does not read": _unread,
    "200 pipelined inferences, then half-close": partial(_half_closed, request=_infer(0), count=200),
    "half-close before a slow answer": partial(_half_closed, request=_infer(1), count=1),
    **{name: partial(_smuggled, request=request) for name, request in _SMUGGLING.items()},
    f"{_HALF_HEADS} half heads at once": _among_half_heads,
    f"{_RESETS} resets inside a body": _after_resets,
}


def _attack(checkout: Path, folder: Path) -> Mapping[str, str]:
    (port,) = reserve_ports(1)
    command = [sys.executable, "-m", "app", "serve", "--model", str(folder), "--allow-code", "--port", str(port)]
    health = f"http://127.0.0.1:{port}/ready"
    with run_server([*command, *_OPTIONS.split()], {"http": port}, health, folder=checkout):
        return {name: attack(port) for name, attack in _ATTACKS.items()}


def main() -> None:
    """Print the table, with a column for each checkout."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "slow"
        folder.mkdir()
        (folder / "model.py").write_text(_MODEL)
        (folder / "model-settings.json").write_text('{"implementation": "model:Slow"}')
        checkouts = [Path(argument).resolve() for argument in sys.argv[1:]] or [ROOT]
        columns = [_attack(checkout, folder) for checkout in checkouts]
    rows = [[name, *(column[name] for column in columns)] for name in _ATTACKS]
    header = [["attack", *(checkout.name for checkout in checkouts)], ["---"] * (1 + len(checkouts))]
    sys.stdout.writelines(f"| {' | '.join(row)} |\n" for row in (*header, *rows))


if __name__ == "__main__":
    main()
