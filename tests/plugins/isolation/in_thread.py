"""Serve a model's channels in threads instead of a process."""

import socket
import threading

from app.core.engine.models.servable import Servable
from app.plugins.isolation.worker_main import CallServer


class FakeProcess:
    """Open channels to `servable`, and record the reasons of kills in `killed`."""

    def __init__(self, servable: Servable) -> None:
        self.servable = servable
        self.killed: list[str] = []
        self.threads: list[threading.Thread] = []
        self.remote_sockets: list[socket.socket] = []

    def open_channel(self) -> socket.socket:
        local, remote = socket.socketpair()
        self.remote_sockets.append(remote)
        thread = threading.Thread(target=CallServer(remote, self.servable).serve)
        thread.start()
        self.threads.append(thread)
        return local

    def kill(self, reason: str) -> None:
        self.killed.append(reason)
        for remote in self.remote_sockets:
            remote.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        for thread in self.threads:
            thread.join(10)
            assert not thread.is_alive()
