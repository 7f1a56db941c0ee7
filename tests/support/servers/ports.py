"""TCP ports of processes that do not say where they listen."""

import random
import socket
from contextlib import ExitStack, closing, suppress
from pathlib import Path

_LISTEN_STATE = "0A"
_PORT_RANGE = range(15_000, 32_000)
"""Below what Linux gives to clients and to servers that ask for port 0."""


def reserve_ports(count: int) -> list[int]:
    """Find ports for programs that cannot choose their own; the kernel gives these to no other process."""
    ports: list[int] = []
    with ExitStack() as open_sockets:
        while len(ports) < count:
            port = random.choice(_PORT_RANGE)
            with suppress(OSError):
                open_sockets.enter_context(closing(socket.create_server(("127.0.0.1", port))))
                ports.append(port)
    return ports


def listening_port(pid: int) -> int | None:
    """Return the port of the only TCP socket on which `pid` listens; None as long as there is none."""
    files: set[str] = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            files.add(str(descriptor.readlink()))
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == _LISTEN_STATE and f"socket:[{fields[9]}]" in files:
            return int(fields[1].rpartition(":")[2], 16)
    return None
