"""Addresses that the server listens on."""

import socket

__all__ = ("ListenError", "listener", "shown")


class ListenError(Exception):
    """An address that the server was told to listen on, and cannot."""


def listener(host: str, port: int) -> socket.socket:
    """A socket that listens on an address.

    Raises:
        ListenError: when it cannot.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        # Now, because two sockets may be bound to one address until one of them listens.
        bound.listen()
    except OSError as error:
        bound.close()
        raise ListenError(f"Cannot listen on {host}:{port}: {error.strerror}") from None
    return bound


def shown(host: str) -> str:
    """The host in a form that a client on this machine can use."""
    if host in ("0.0.0.0", "::"):  # noqa: S104  compared with, not bound to
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
