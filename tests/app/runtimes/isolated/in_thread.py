"""The other end of a model's lines in threads instead of a process."""

import socket
import threading
from typing import Any

from app.engine.servable import BoundServable
from app.runtimes.isolated.answering import Line


class InThreads:
    """Opens lines to `servable`; what it is told is in `killed`."""

    def __init__(self, servable: BoundServable[Any, Any]) -> None:
        self.servable = servable
        self.killed: list[str] = []
        self.threads: list[threading.Thread] = []
        self.theirs: list[socket.socket] = []

    def open_line(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        self.theirs.append(theirs)
        thread = threading.Thread(target=Line(theirs, self.servable).serve)
        thread.start()
        self.threads.append(thread)
        return ours

    def kill(self, reason: str) -> None:
        self.killed.append(reason)
        for each in self.theirs:
            each.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        for each in self.threads:
            each.join(10)
            assert not each.is_alive()
