"""A line between a client and a server on this machine, that a test can cut."""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

__all__ = ("CutLine",)


class CutLine:
    """Passes on what comes to `port`, until it is cut. While it is cut, nobody is let in."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cuts = 0
        self._open = True
        self._fatal: bytes | None = None
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.cut()
        self._listener.close()

    def cut(self) -> None:
        """End all connections, and let nobody in."""
        self._open = False
        self._hang_up()

    def mend(self) -> None:
        """Let clients in again."""
        self._open = True

    def cut_before_the_answer_to(self, words: bytes) -> None:
        """Once, pass on what contains `words`, and end all connections when the answer comes."""
        self._fatal = words

    def _hang_up(self) -> None:
        self.cuts += 1
        with self._lock:
            ended, self._sockets = self._sockets, []
        for each in ended:
            _end(each)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self._open:
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self._server_port))
            with self._lock:
                self._sockets += [client, server]
            doomed = threading.Event()
            threading.Thread(target=self._pass_on, args=(client, server, doomed, True), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(server, client, doomed, False), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, doomed: threading.Event, asking: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if asking and self._fatal is not None and self._fatal in data:
                    self._fatal = None
                    doomed.set()
                elif not asking and doomed.is_set():
                    self._hang_up()
                    return
                target.sendall(data)
        _end(source)
        _end(target)


def _end(each: socket.socket) -> None:
    """Tell whoever reads from it, too, which closing it would not do."""
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
