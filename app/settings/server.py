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
from app.settings.environment import LIMITS, LOGGING, MODELS, NETWORK, PAGE, environment
from app.settings.limits import LimitSettings
from app.settings.listening import ListeningSettings
from app.settings.recording import RecordingSettings
from app.settings.transport import TransportSettings

__all__ = ("ModelOptions", "OperationSettings", "ServerSettings", "SettingsError")


class SettingsError(Exception):
    """The server cannot run with these settings. The message is for its operator."""


@Parameter(name="*", group=MODELS)
@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The models to serve."""

    demo: Annotated[bool, environment("CHARIOTEER_DEMO", show=True, negative="")] = False
    """Serve small models of coloured shapes, to try the server; the page has images for them."""

    model: Annotated[Path | None, environment("CHARIOTEER_MODEL", "MODEL_PATH", show=True)] = None
    """File or folder of one model."""

    model_repository: Annotated[Path | None, environment("CHARIOTEER_MODEL_REPOSITORY", show=True)] = None
    """Folder with one folder for each model; versions are subfolders."""

    model_dir: Annotated[Path | None, environment("MODEL_DIR")] = None
    """Folder of one model or of several; detected from its content."""

    model_name: Annotated[str | None, environment("CHARIOTEER_MODEL_NAME")] = None
    """Name of the model, if only one is served; several keep their own names."""

    score_threshold: Annotated[
        float | None,
        environment("CHARIOTEER_SCORE_THRESHOLD", "DEFAULT_SCORE_THRESHOLD"),
        Parameter(validator=Number(gte=0, lte=1)),
    ] = None
    """Default score threshold; requests and the model's settings may set another."""

    device: Annotated[str | None, environment("CHARIOTEER_DEVICE", show=True)] = None
    """Default devices of ONNX Runtime, separated by commas: auto, cpu, cuda:0, tensorrt:0, openvino:GPU or coreml."""

    compile_cache: Annotated[Path | None, environment("CHARIOTEER_COMPILE_CACHE")] = None
    """Folder in which OpenVINO keeps compiled models, to load them faster; by default none."""

    allow_code: Annotated[bool, environment("CHARIOTEER_ALLOW_CODE", show=True)] = False
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
class OperationSettings:
    """Threads, shutdown, the web page, logs and traces."""

    repository_poll_seconds: Annotated[
        PositiveFloat | None, environment("CHARIOTEER_REPOSITORY_POLL_SECONDS", group=MODELS)
    ] = None
    """Seconds between scans of the disk for changed models; by default never."""

    workers: Annotated[PositiveInt | None, environment("CHARIOTEER_WORKERS", show=True, group=LIMITS)] = None
    """Threads that decode, run and encode; by default one for each core, or for each CPU of a container's quota."""

    explain_workers: Annotated[PositiveInt, environment("CHARIOTEER_EXPLAIN_WORKERS", group=LIMITS)] = 1
    """Additional threads for explanations, with a lower priority."""

    page: Annotated[bool | None, environment("CHARIOTEER_PAGE", show=True, group=PAGE)] = None
    """Whether to serve the web page at /; by default only if the server listens on a loopback address."""

    page_admin: Annotated[bool | None, environment("CHARIOTEER_PAGE_ADMIN", group=PAGE)] = None
    """Whether the page may load and unload models; by default only in a browser on the same machine, if the server
    listens on a loopback address."""

    drain_delay: Annotated[NonNegativeFloat, environment("CHARIOTEER_DRAIN_DELAY", group=NETWORK)] = 0.0
    """Seconds between the signal to stop and the end of accepting requests. The server reports not ready meanwhile, so
    that load balancers notice."""

    drain_timeout: Annotated[PositiveInt, environment("CHARIOTEER_DRAIN_TIMEOUT", group=NETWORK)] = 30
    """Seconds that requests in flight have to finish when the server stops."""

    otlp_endpoint: Annotated[
        str | None, environment("CHARIOTEER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT", show=True, group=LOGGING)
    ] = None
    """Base URL of an OTLP collector over HTTP that receives traces. Needs the extra otel."""

    log_format: Annotated[
        Literal["console", "json"] | None, environment("CHARIOTEER_LOG_FORMAT", show=True, group=LOGGING)
    ] = None
    """Format of log lines; by default console if the log goes to a terminal, else json."""

    @property
    def worker_count(self) -> int:
        """Return `workers`, by default the number of cores that this process may use."""
        return self.workers or _cores()


@dataclass(frozen=True, kw_only=True)
class ServerSettings(
    OperationSettings,
    DriftSettings,
    RecordingSettings,
    LimitSettings,
    AccessSettings,
    TransportSettings,
    ListeningSettings,
):
    """All settings of the server."""


def _cores() -> int:
    """Return the cores of the CPU affinity, or the limit of the control group (cgroup v2, cpu.max: quota, period)."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):
        return cores
