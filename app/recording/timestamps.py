"""Format timestamps."""

from datetime import UTC, datetime, timedelta

__all__ = ("format_timestamp",)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_timestamp(microseconds: int) -> str:
    """Format microseconds since 1970 as ISO 8601 in UTC, such as ``2026-11-05T12:30:00.000000Z``."""
    return (_EPOCH + timedelta(microseconds=microseconds)).isoformat(timespec="microseconds").replace("+00:00", "Z")
