"""Backpressure of one connection, in both directions."""

import asyncio

__all__ = ("FlowControl",)


class FlowControl:
    """Pause and resume reading and writing.

    Args:
        transport: the connection.

    Attributes:
        read_paused: whether reading is paused.
        write_paused: whether the client reads too slowly.
        blocked: whether received bytes wait for the parser, so that reading must not be resumed.
    """

    __slots__ = ("_transport", "_writable", "blocked", "read_paused", "write_paused")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._writable: asyncio.Event | None = None
        self.read_paused = False
        self.write_paused = False
        self.blocked = False

    def pause_reading(self) -> None:
        """Read no more bytes."""
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again, unless `blocked`."""
        if self.read_paused and not self.blocked:
            self.read_paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Let `wait_writable` wait."""
        self.write_paused = True
        self._writable = asyncio.Event()

    def resume_writing(self) -> None:
        """Let `wait_writable` return."""
        self.write_paused = False
        if self._writable is not None:
            self._writable.set()

    async def wait_writable(self) -> None:
        """Wait until the client has read most of what was written, or the connection is lost."""
        if self.write_paused and self._writable is not None:
            await self._writable.wait()
