"""Settings of the server, one value built at start and passed down. Nothing else reads the environment."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.types import NonNegativeFloat, PositiveFloat, PositiveInt
from cyclopts.validators import Number

from app.settings.access import AccessSettings
from app.settings.drift import DriftSettings
from app.settings.environment import environment
from app.settings.limits import LimitSettings
from app.settings.listening import ListeningSettings
from app.settings.recording import RecordingSettings
from app.settings.transport import TransportSettings

__all__ = ("ModelOptions", "ServerSettings", "SettingsError")


class SettingsError(Exception):
    """Settings that the server cannot be run with, with a sentence for its operator."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which models there are. Without any of these, the fixture models of this repository."""

    model: Annotated[Path | None, environment("CHARIOTEER_MODEL", "MODEL_PATH")] = None
    """One model: its file, or its folder."""

    model_repository: Annotated[Path | None, environment("CHARIOTEER_MODEL_REPOSITORY")] = None
    """A folder with a folder for each model, versions as sub-folders."""

    model_dir: Annotated[Path | None, environment("MODEL_DIR")] = None
    """Either of the two, told apart by what it holds."""

    score_threshold: Annotated[
        float | None,
        environment("CHARIOTEER_SCORE_THRESHOLD", "DEFAULT_SCORE_THRESHOLD"),
        Parameter(validator=Number(gte=0, lte=1)),
    ] = None
    """Findings that score lower are left out, unless the request or the model's settings say otherwise."""

    device: Annotated[str | None, environment("CHARIOTEER_DEVICE")] = None
    """Where ONNX Runtime runs models that do not say so: auto, cpu, cuda:0, tensorrt:0, openvino:GPU or coreml; several
    with commas between them."""

    allow_code: Annotated[bool, environment("CHARIOTEER_ALLOW_CODE")] = False
    """Whether models may be Python classes, whose code then runs in the server with all of its rights."""

    isolate: Annotated[bool, environment("CHARIOTEER_ISOLATE")] = False
    """Whether every model runs in a process of its own, so that its crash is not the server's."""

    model_links: Annotated[str | None, environment("CHARIOTEER_MODEL_LINKS")] = None
    """Folders, with commas between them, that links in models' folders may lead to; else only to files of the model."""

    require_manifest: Annotated[bool, environment("CHARIOTEER_REQUIRE_MANIFEST")] = False
    """Whether only models are loaded whose files are all listed in a model.sha256 of theirs, and are as listed."""

    model_signing_key: Annotated[Path | None, environment("CHARIOTEER_MODEL_SIGNING_KEY")] = None
    """A file of Ed25519 public keys (PEM): only models are loaded whose model.sha256 is signed with one of them. Needs
    the extra signatures."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServerSettings(
    DriftSettings, RecordingSettings, LimitSettings, AccessSettings, TransportSettings, ListeningSettings
):
    """How the server runs. Of several bases, the last is the first that people are told of."""

    repository_poll_seconds: Annotated[PositiveFloat | None, environment("CHARIOTEER_REPOSITORY_POLL_SECONDS")] = None
    """How often to look for changed models on disk; never when absent."""

    workers: Annotated[PositiveInt | None, environment("CHARIOTEER_WORKERS")] = None
    """Threads that decode, run and encode; one for each core, or for each CPU of a container's quota, when absent."""

    explain_workers: Annotated[PositiveInt, environment("CHARIOTEER_EXPLAIN_WORKERS")] = 1
    """Threads that make explanations, beside the others and at a lower priority."""

    page: Annotated[bool | None, environment("CHARIOTEER_PAGE")] = None
    """Whether to show the page to browsers, at /; when absent, only where the server listens on a loopback address."""

    page_admin: Annotated[bool | None, environment("CHARIOTEER_PAGE_ADMIN")] = None
    """Whether the page may load and unload models; when absent, only in a browser on the same machine, of a server that
    listens on a loopback address."""

    drain_delay: Annotated[NonNegativeFloat, environment("CHARIOTEER_DRAIN_DELAY")] = 0.0
    """Seconds that a server which is told to stop goes on taking requests while it says that it is not ready, for load
    balancers to notice."""

    drain_timeout: Annotated[PositiveInt, environment("CHARIOTEER_DRAIN_TIMEOUT")] = 30
    """Seconds that requests in flight are given to finish when the server is told to stop."""

    otlp_endpoint: Annotated[str | None, environment("CHARIOTEER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")] = None
    """Where to send traces: the base address of an OTLP collector over HTTP. Needs the extra otel."""

    log_format: Annotated[Literal["console", "json"] | None, environment("CHARIOTEER_LOG_FORMAT")] = None
    """Log lines for people or for machines; for people when absent and the log goes to a terminal."""

    @property
    def worker_count(self) -> int:
        """`workers`, or the cores that this process may use."""
        return self.workers or _cores()


def _cores() -> int:
    """Cores by affinity, or fewer where a control group grants less (cgroup v2, cpu.max: quota and period)."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):
        return cores
