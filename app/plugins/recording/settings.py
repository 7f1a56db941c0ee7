"""Options of `serve` for recording."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter
from cyclopts.types import PositiveInt
from cyclopts.validators import Number

from app.core.settings.environment import environment

_RECORDING = Group("Recording", sort_key=6)
_Days = Annotated[float, Parameter(validator=Number(gt=0, lte=1_000_000))]


@Parameter(name="*", group=_RECORDING)
@dataclass(frozen=True, kw_only=True)
class RecordingSettings:
    """Recording of inferences, and truths of recorded inferences."""

    record: Annotated[str | None, environment("CHARIOTEER_RECORD", show=True)] = None
    """Where to record every inference: a file (SQLite), or postgresql://user@host/database; off by default."""

    record_mode: Annotated[Literal["acknowledge", "best-effort"], environment("CHARIOTEER_RECORD_MODE")] = "acknowledge"
    """acknowledge: send an answer only after it is recorded, else an error; best-effort: drop records that fail."""

    record_images: Annotated[Path | None, environment("CHARIOTEER_RECORD_IMAGES", show=True)] = None
    """Folder for the images, each stored once; by default only their digests are recorded."""

    record_sample: Annotated[
        float, environment("CHARIOTEER_RECORD_SAMPLE"), Parameter(validator=Number(gt=0, lte=1))
    ] = 1.0
    """Fraction of requests that are recorded."""

    record_keep: Annotated[_Days | None, environment("CHARIOTEER_RECORD_KEEP")] = None
    """Days after which records are deleted; by default never."""

    record_keep_images: Annotated[_Days | None, environment("CHARIOTEER_RECORD_KEEP_IMAGES")] = None
    """Days after which images are deleted, at most as long as their records; by default the same."""

    record_redact: Annotated[str, environment("CHARIOTEER_RECORD_REDACT")] = ""
    """Keys of metadata and parameters, separated by commas, whose values are not recorded, at any depth."""

    record_when: Annotated[str, environment("CHARIOTEER_RECORD_WHEN", show=True)] = ""
    """Rules of what to record beside the random sample, separated by semicolons, such as 'unsure: score > 0.3 and
    score < 0.6 limit 100/hour'."""

    record_queue: Annotated[PositiveInt, environment("CHARIOTEER_RECORD_QUEUE")] = 1024
    """Maximum number of requests that wait to be recorded."""

    serve_inferences: Annotated[bool | None, environment("CHARIOTEER_SERVE_INFERENCES")] = None
    """Whether to serve recorded inferences and images at /inferences; by default only on a loopback address."""

    serve_truth: Annotated[bool, environment("CHARIOTEER_SERVE_TRUTH")] = False
    """Whether clients with the permission label may send truths of recorded inferences."""
