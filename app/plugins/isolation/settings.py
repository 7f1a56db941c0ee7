"""Options of commands that load models, and settings of one model."""

from dataclasses import dataclass
from typing import Annotated

import msgspec

from app.core.settings.environment import environment


@dataclass(frozen=True, kw_only=True)
class IsolationOptions:
    """Models in processes of their own."""

    isolate: Annotated[bool, environment("CHARIOTEER_ISOLATE")] = False
    """Whether every model runs in its own process, so that a crash does not stop the server."""


class IsolationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A model in a process of its own.

    Attributes:
        isolate: whether it runs in its own process, with any runtime.
        memory_limit_bytes: memory that this process may reserve (RLIMIT_DATA of setrlimit(2)).
    """

    isolate: bool = False
    memory_limit_bytes: Annotated[int, msgspec.Meta(ge=256 * 1024 * 1024)] | None = None
