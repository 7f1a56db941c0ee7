"""What is recorded, where, and who is shown it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.types import PositiveFloat, PositiveInt
from cyclopts.validators import Number

from app.settings.environment import environment

__all__ = ("RecordingSettings",)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RecordingSettings:
    """What is recorded."""

    record: Annotated[str | None, environment("CHARIOTEER_RECORD")] = None
    """Where to record every inference: a file (SQLite), or postgresql://<user>@<host>/<database>; off when absent."""

    record_mode: Annotated[Literal["acknowledge", "best-effort"], environment("CHARIOTEER_RECORD_MODE")] = "acknowledge"
    """Whether answers wait until they are recorded, and are refused if they cannot be; or what cannot be is dropped."""

    record_images: Annotated[Path | None, environment("CHARIOTEER_RECORD_IMAGES")] = None
    """A folder to keep the images in, each once; only their digests are recorded when absent."""

    record_sample: Annotated[
        float, environment("CHARIOTEER_RECORD_SAMPLE"), Parameter(validator=Number(gt=0, lte=1))
    ] = 1.0
    """The share of requests that are recorded."""

    record_keep: Annotated[PositiveFloat | None, environment("CHARIOTEER_RECORD_KEEP")] = None
    """Days after which records are deleted; never when absent."""

    record_keep_images: Annotated[PositiveFloat | None, environment("CHARIOTEER_RECORD_KEEP_IMAGES")] = None
    """Days after which images are deleted, not more than their records are kept; as long as those when absent."""

    record_redact: Annotated[str, environment("CHARIOTEER_RECORD_REDACT")] = ""
    """Keys of metadata and parameters, separated by commas, whose values are left out of records, however deep."""

    record_queue: Annotated[PositiveInt, environment("CHARIOTEER_RECORD_QUEUE")] = 1024
    """Requests that may wait to be recorded."""

    serve_inferences: Annotated[bool | None, environment("CHARIOTEER_SERVE_INFERENCES")] = None
    """Whether to show what was recorded, pictures too, at /inferences; only on a loopback address when absent."""
