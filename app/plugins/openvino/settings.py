"""Options of commands that load models."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from app.core.settings.environment import environment


@dataclass(frozen=True, kw_only=True)
class OpenVinoOptions:
    """Compiled models of OpenVINO."""

    compile_cache: Annotated[Path | None, environment("CHARIOTEER_COMPILE_CACHE")] = None
    """Folder in which OpenVINO keeps compiled models, to load them faster; by default none."""
