"""Options of commands that load models."""

from dataclasses import dataclass
from typing import Annotated

from app.core.settings.environment import environment


@dataclass(frozen=True, kw_only=True)
class IsolationOptions:
    """Models in processes of their own."""

    isolate: Annotated[bool, environment("CHARIOTEER_ISOLATE")] = False
    """Whether every model runs in its own process, so that a crash does not stop the server."""
