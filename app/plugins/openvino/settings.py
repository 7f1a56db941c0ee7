"""Options of commands that load models, and settings of one model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from app.core.settings.environment import environment


@dataclass(frozen=True, kw_only=True)
class OpenVinoOptions:
    """Compiled models of OpenVINO."""

    compile_cache: Annotated[Path | None, environment("CHARIOTEER_COMPILE_CACHE")] = None
    """Folder in which OpenVINO keeps compiled models, to load them faster; by default none."""


class OpenVinoSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where and how the `openvino` runtime runs a model's graph.

    Attributes:
        device: `cpu`, or an Intel `gpu`, `gpu:1` or `npu`.
        streams: number of calls that run side by side on a CPU; by default the number of the server's workers.
        threads: threads of one call on a CPU. More than one helps with few parallel requests, and slows down many.
    """

    device: Annotated[str, msgspec.Meta(pattern=r"^(cpu|npu|gpu(:\d+)?)$")] = "cpu"
    streams: Annotated[int, msgspec.Meta(ge=1, le=256)] | None = None
    threads: Annotated[int, msgspec.Meta(ge=1, le=256)] = 1
