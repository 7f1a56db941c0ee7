"""The protobuf messages of GRPS."""

from pathlib import Path

from app.core.proto import add_descriptors, message_class, service

__all__ = ("GRPS", "message_class")

add_descriptors(Path(__file__).parent, "grps")

GRPS = service("grps.protos.v1.GrpsService")
"""The service of GRPS."""
