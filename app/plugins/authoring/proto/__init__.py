"""The protobuf messages of Triton's model configurations."""

from pathlib import Path

from app.core.proto import add_descriptors, message_class

__all__ = ("message_class",)

add_descriptors(Path(__file__).parent, "triton")
