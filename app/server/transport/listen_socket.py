"""Open listening sockets."""

import socket


class ListenError(Exception):
    """The server cannot listen on the configured address.

    Args:
        host: the host of the address.
        port: the port of the address.
        reason: why not, in a few words.
    """

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"Cannot listen on {host}:{port}: {reason}")
        self.port = port


def open_listen_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address.

    Raises:
        ListenError: if the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server_socket = socket.socket(family, socket.SOCK_STREAM)
    try:
        server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server_socket.bind((host, port))
        # Listen now: several sockets can be bound to one address until one of them listens.
        server_socket.listen()
    except OSError as error:
        server_socket.close()
        raise ListenError(host, port, error.strerror or str(error)) from None
    return server_socket


def connectable_host(host: str) -> str:
    """Return the host in a form that a client on this machine can use."""
    if host in ("0.0.0.0", "::"):  # noqa: S104  compared with, not bound to
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
