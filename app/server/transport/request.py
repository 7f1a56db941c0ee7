"""What a connection knows of each of its requests, in the application or answered directly."""

__all__ = ("ConnectionRequest",)


class ConnectionRequest:
    """A request on a connection. The connection fills it, and calls `notify` or `complete_body` after each change.

    Args:
        keep_alive: whether the connection stays open after the response.
        http_version: such as 1.1.
        waiting_for_100_continue: whether the client sends its body only after an interim response.

    Attributes:
        body: the received bytes of the body that are not read yet.
        more_body: whether more bytes of the body will arrive.
        disconnected: whether the client has left, or its connection accepts no response.
        response_started: whether bytes of the response are written.
        response_complete: whether all bytes of the response are written.
    """

    __slots__ = (
        "body",
        "disconnected",
        "http_version",
        "keep_alive",
        "more_body",
        "response_complete",
        "response_started",
        "waiting_for_100_continue",
    )

    def __init__(self, *, keep_alive: bool, http_version: str = "1.1", waiting_for_100_continue: bool = False) -> None:
        self.keep_alive = keep_alive
        self.http_version = http_version
        self.waiting_for_100_continue = waiting_for_100_continue
        self.body = bytearray()
        self.more_body = True
        self.disconnected = False
        self.response_started = False
        self.response_complete = False

    def notify(self) -> None:
        """React to more bytes of the body, or to a client that has disconnected."""
        raise NotImplementedError

    def complete_body(self) -> None:
        """React to the end of the body."""
        raise NotImplementedError
