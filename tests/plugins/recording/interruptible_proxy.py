"""A TCP proxy between a client and a server on this machine that a test can interrupt."""

import socket
import threading
from contextlib import suppress


class InterruptibleProxy:
    """Forward connections from `port` to the server, except while the proxy is cut."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cuts = 0
        self._accepting, self._silent = True, False
        self._trigger: bytes | None = None
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def cut(self) -> None:
        """Close all connections and reject new ones."""
        self._accepting = False
        self._close_all()

    def restore(self) -> None:
        self._accepting, self._silent = True, False

    def silence(self) -> None:
        """Keep all connections open, but forward nothing, as when a server hangs."""
        self._silent = True

    def cut_before_reply_to(self, content: bytes) -> None:
        """Forward the next request that contains `content`, and close all connections instead of replying."""
        self._trigger = content

    def _close_all(self) -> None:
        self.cuts += 1
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for sock in sockets:
            _shut_down(sock)
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self._accepting:
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self._server_port))
            with self._lock:
                self._sockets += [client, server]
            triggered = threading.Event()
            threading.Thread(target=self._forward, args=(client, server, triggered, True), daemon=True).start()
            threading.Thread(target=self._forward, args=(server, client, triggered, False), daemon=True).start()

    def _forward(
        self, source: socket.socket, target: socket.socket, triggered: threading.Event, is_request: bool
    ) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if is_request and self._trigger is not None and self._trigger in data:
                    self._trigger = None
                    triggered.set()
                elif not is_request and triggered.is_set():
                    self._close_all()
                    return
                if not self._silent:
                    target.sendall(data)
        _shut_down(source)
        _shut_down(target)


def _shut_down(sock: socket.socket) -> None:
    """Wake the threads that read from the socket; closing it alone does not."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
