"""What a `Content-Type` says, apart from its parameters."""

__all__ = ("media_type_of",)


def media_type_of(content_type: str) -> str:
    """`content_type` without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()
