"""Settings of the server: one value, built at start and passed down. Nothing else reads the environment."""

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
    """The server cannot run with these settings. The message is for its operator."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The models to serve. By default the fixture models of this repository."""

    model: Annotated[Path | None, environment("CHARIOTEER_MODEL", "MODEL_PATH")] = None
    """File or folder of one model."""

    model_repository: Annotated[Path | None, environment("CHARIOTEER_MODEL_REPOSITORY")] = None
    """Folder with one folder for each model; versions are subfolders."""

    model_dir: Annotated[Path | None, environment("MODEL_DIR")] = None
    """Folder of one model or of several; detected from its content."""

    score_threshold: Annotated[
        float | None,
        environment("CHARIOTEER_SCORE_THRESHOLD", "DEFAULT_SCORE_THRESHOLD"),
        Parameter(validator=Number(gte=0, lte=1)),
    ] = None
    """Default score threshold; requests and the model's settings may set another."""

    device: Annotated[str | None, environment("CHARIOTEER_DEVICE")] = None
    """Default devices of ONNX Runtime, separated by commas: auto, cpu, cuda:0, tensorrt:0, openvino:GPU or coreml."""

    allow_code: Annotated[bool, environment("CHARIOTEER_ALLOW_CODE")] = False
    """Whether to load models that are Python classes; their code runs with all rights of the server."""

    isolate: Annotated[bool, environment("CHARIOTEER_ISOLATE")] = False
    """Whether every model runs in its own process, so that a crash does not stop the server."""

    model_links: Annotated[str | None, environment("CHARIOTEER_MODEL_LINKS")] = None
    """Folders, separated by commas, to which links in models' folders may lead; by default only the model's own."""

    require_manifest: Annotated[bool, environment("CHARIOTEER_REQUIRE_MANIFEST")] = False
    """Whether to load only models with a manifest (model.sha256) that lists the correct digest of every file."""

    model_signing_key: Annotated[Path | None, environment("CHARIOTEER_MODEL_SIGNING_KEY")] = None
    """File of Ed25519 public keys (PEM): load only models whose manifest is signed with one of them. Needs the extra
    signatures."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServerSettings(
    DriftSettings, RecordingSettings, LimitSettings, AccessSettings, TransportSettings, ListeningSettings
):
    """The settings of the server. The help text lists the last base class first."""

    repository_poll_seconds: Annotated[PositiveFloat | None, environment("CHARIOTEER_REPOSITORY_POLL_SECONDS")] = None
    """Seconds between scans of the disk for changed models; by default never."""

    workers: Annotated[PositiveInt | None, environment("CHARIOTEER_WORKERS")] = None
    """Threads that decode, run and encode; by default one for each core, or for each CPU of a container's quota."""

    explain_workers: Annotated[PositiveInt, environment("CHARIOTEER_EXPLAIN_WORKERS")] = 1
    """Additional threads for explanations, with a lower priority."""

    page: Annotated[bool | None, environment("CHARIOTEER_PAGE")] = None
    """Whether to serve the web page at /; by default only if the server listens on a loopback address."""

    page_admin: Annotated[bool | None, environment("CHARIOTEER_PAGE_ADMIN")] = None
    """Whether the page may load and unload models; by default only in a browser on the same machine, if the server
    listens on a loopback address."""

    drain_delay: Annotated[NonNegativeFloat, environment("CHARIOTEER_DRAIN_DELAY")] = 0.0
    """Seconds between the signal to stop and the end of accepting requests. The server reports not ready meanwhile, so
    that load balancers notice."""

    drain_timeout: Annotated[PositiveInt, environment("CHARIOTEER_DRAIN_TIMEOUT")] = 30
    """Seconds that requests in flight have to finish when the server stops."""

    otlp_endpoint: Annotated[str | None, environment("CHARIOTEER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")] = None
    """Base URL of an OTLP collector over HTTP that receives traces. Needs the extra otel."""

    log_format: Annotated[Literal["console", "json"] | None, environment("CHARIOTEER_LOG_FORMAT")] = None
    """Format of log lines; by default console if the log goes to a terminal, else json."""

    @property
    def worker_count(self) -> int:
        """Return `workers`, by default the number of cores that this process may use."""
        return self.workers or _cores()


def _cores() -> int:
    """Return the cores of the CPU affinity, or the limit of the control group (cgroup v2, cpu.max: quota, period)."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):
        return cores
