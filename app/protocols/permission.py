"""What a caller has to be allowed to do, for what a protocol serves."""

from typing import Literal

__all__ = ("PERMISSIONS", "Permission")

Permission = Literal["open", "infer", "read", "admin"]
"""``infer`` asks models and about them, ``read`` sees what the server did and keeps, ``admin`` changes what it serves.
``open`` needs nothing: probes ask it. None of them includes another."""

PERMISSIONS: tuple[Permission, ...] = ("infer", "read", "admin")
"""Those that a caller can be given."""
