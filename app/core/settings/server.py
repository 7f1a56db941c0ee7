"""Settings of the server: one value, built at start and passed down. Nothing else reads the environment."""

import math
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec
from cyclopts import Parameter
from cyclopts.types import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from cyclopts.validators import Number

from app.core.settings.environment import LIMITS, LOGGING, MODELS, NETWORK, environment
from app.core.settings.images import ImageSettings
from app.core.settings.network import AccessSettings, ListeningSettings, TransportSettings

T = TypeVar("T")

_PACKAGED = Path(__file__).parents[2] / "demo"

IS_CHECKOUT = not _PACKAGED.is_dir()
"""Whether the code runs from the repository. There the demo is the default if no model is named."""

_DEMO_FOLDER = Path(__file__).parents[3] / "fixtures" if IS_CHECKOUT else _PACKAGED
DEMO_MODELS = _DEMO_FOLDER / "models"
DEMO_IMAGES = _DEMO_FOLDER / "images"
"""The models and images of `--demo`: a part of the wheel, and the fixtures of the repository."""

Fraction = Annotated[float, Parameter(validator=Number(gte=0, lte=1)), msgspec.Meta(ge=0, le=1)]
"""A number of 0..1, checked on the command line and in the user config of Ray Serve."""


class SettingsError(Exception):
    """The server cannot run with these settings. The message is for its operator."""


@Parameter(name="*", group=MODELS)
@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The models to serve. The objects of commands also have the options of plugins."""

    demo: Annotated[bool, environment("CHARIOTEER_DEMO", show=True, negative="")] = False
    """Serve small models to try the server: faces, coloured shapes, and with the extra demo also text in images."""

    model: Annotated[Path | None, environment("CHARIOTEER_MODEL", "MODEL_PATH", show=True)] = None
    """File or folder of one model."""

    model_repository: Annotated[Path | None, environment("CHARIOTEER_MODEL_REPOSITORY", show=True)] = None
    """Folder with one folder for each model; versions are subfolders."""

    model_dir: Annotated[Path | None, environment("MODEL_DIR")] = None
    """Folder of one model or of several; detected from its content."""

    model_name: Annotated[str | None, environment("CHARIOTEER_MODEL_NAME")] = None
    """Name of the model, if only one is served; several keep their own names."""

    score_threshold: Annotated[
        Fraction | None, environment("CHARIOTEER_SCORE_THRESHOLD", "DEFAULT_SCORE_THRESHOLD")
    ] = None
    """Default score threshold; requests and the model's settings may set another."""

    device: Annotated[str | None, environment("CHARIOTEER_DEVICE", show=True)] = None
    """Default devices of ONNX Runtime, separated by commas: auto, cpu, cuda:0, tensorrt:0 or openvino:GPU."""

    allow_code: Annotated[bool, environment("CHARIOTEER_ALLOW_CODE", show=True)] = False
    """Whether to load models that are Python classes; their code runs with all rights of the server."""

    model_links: Annotated[str | None, environment("CHARIOTEER_MODEL_LINKS")] = None
    """Folders, separated by commas, to which links in models' folders may lead; by default only the model's own."""

    plugins: Annotated[str | None, environment("CHARIOTEER_PLUGINS", show=True)] = None
    """Installed plugins of others to load, by name, separated by commas; their code has all rights of the server."""

    require_manifest: Annotated[bool, environment("CHARIOTEER_REQUIRE_MANIFEST")] = False
    """Whether to load only models with a manifest (model.sha256) that lists the correct digest of every file."""

    model_signing_key: Annotated[Path | None, environment("CHARIOTEER_MODEL_SIGNING_KEY")] = None
    """File of Ed25519 public keys (PEM): load only models whose manifest is signed with one of them. Needs the extra
    signatures."""

    def of(self, kind: type[T]) -> T:
        """Return the options of a plugin, of the class that it lists in `Plugin.model_options`; by default its own."""
        if not isinstance(self, kind):
            return kind()
        names = (field.name for field in fields(cast("Any", kind)))
        return kind(**{name: getattr(self, name) for name in names})


@Parameter(name="*", group=LIMITS)
@dataclass(frozen=True, kw_only=True)
class LimitSettings(ImageSettings):
    """Limits on requests."""

    max_request_bytes: Annotated[PositiveInt, environment("CHARIOTEER_MAX_REQUEST_BYTES", show=True)] = 64 * 1024 * 1024
    """Maximum size of a body; a larger one gets 413."""

    max_request_pixels: Annotated[PositiveInt, environment("CHARIOTEER_MAX_REQUEST_PIXELS")] = 256_000_000
    """Maximum number of pixels of all images in a request."""

    max_inputs: Annotated[PositiveInt, environment("CHARIOTEER_MAX_INPUTS")] = 256
    """Maximum number of images or texts in a request."""

    max_image_side: Annotated[PositiveInt, environment("CHARIOTEER_MAX_IMAGE_SIDE")] = 32_768
    """Maximum width and height of an image in pixels, read from its header."""

    max_image_scans: Annotated[PositiveInt, environment("CHARIOTEER_MAX_IMAGE_SCANS")] = 64
    """Maximum number of scans in a JPEG; a progressive one usually has about ten."""

    max_elements: Annotated[PositiveInt, environment("CHARIOTEER_MAX_ELEMENTS")] = 32 * 1024 * 1024
    """Maximum number of elements of all tensors in a request."""

    max_values: Annotated[PositiveInt, environment("CHARIOTEER_MAX_VALUES")] = 4_000_000
    """Maximum number of JSON values, mostly numbers, in a body; binary tensors have none."""

    max_entries: Annotated[PositiveInt, environment("CHARIOTEER_MAX_ENTRIES")] = 100_000
    """Maximum number of members of JSON objects, BYTES elements, or fields of a gRPC message in a body."""

    max_json_depth: Annotated[PositiveInt, environment("CHARIOTEER_MAX_JSON_DEPTH")] = 100
    """Maximum depth of nested JSON arrays and objects."""

    max_name_length: Annotated[PositiveInt, environment("CHARIOTEER_MAX_NAME_LENGTH")] = 1024
    """Maximum length in bytes of a name in a request: of an input, a parameter, or the request."""

    max_prompts: Annotated[PositiveInt, environment("CHARIOTEER_MAX_PROMPTS")] = 256
    """Maximum number of prompts of all images, or of texts to continue, in a request."""

    max_text_length: Annotated[PositiveInt, environment("CHARIOTEER_MAX_TEXT_LENGTH")] = 200_000
    """Maximum number of characters of a prompt or text."""

    max_new_tokens: Annotated[PositiveInt, environment("CHARIOTEER_MAX_NEW_TOKENS")] = 1024
    """Maximum number of tokens that a request may generate for one prompt."""

    max_each_client: Annotated[PositiveInt | None, environment("CHARIOTEER_MAX_EACH_CLIENT")] = None
    """Maximum number of requests and streams in flight of one client, by its key or else its address; further ones get
    429. No limit by default."""

    max_waiting: Annotated[PositiveInt, environment("CHARIOTEER_MAX_WAITING", show=True)] = 128
    """Maximum number of requests that wait for a worker; further ones get 429."""

    max_waiting_each: Annotated[NonNegativeInt | None, environment("CHARIOTEER_MAX_WAITING_EACH")] = None
    """Maximum number of requests that wait for one model; half of max_waiting by default with several models."""

    max_queue_seconds: Annotated[PositiveFloat | None, environment("CHARIOTEER_MAX_QUEUE_SECONDS")] = None
    """Maximum estimated wait for a worker; requests that would wait longer get 429. No limit by default."""

    request_timeout: Annotated[PositiveFloat, environment("CHARIOTEER_REQUEST_TIMEOUT", show=True)] = 300.0
    """Seconds after which a request gets 504; a client may set a shorter timeout, never a longer one."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OperationSettings:
    """Threads, shutdown and logs."""

    repository_poll_seconds: Annotated[
        PositiveFloat | None, environment("CHARIOTEER_REPOSITORY_POLL_SECONDS", group=MODELS)
    ] = None
    """Seconds between scans of the disk for changed models; by default never."""

    workers: Annotated[PositiveInt | None, environment("CHARIOTEER_WORKERS", show=True, group=LIMITS)] = None
    """Threads that decode, run and encode; by default one for each core, or for each CPU of a container's quota."""

    drain_delay: Annotated[NonNegativeFloat, environment("CHARIOTEER_DRAIN_DELAY", group=NETWORK)] = 0.0
    """Seconds between the signal to stop and the end of accepting requests. The server reports not ready meanwhile, so
    that load balancers notice."""

    drain_timeout: Annotated[PositiveInt, environment("CHARIOTEER_DRAIN_TIMEOUT", group=NETWORK)] = 30
    """Seconds that requests in flight have to finish when the server stops."""

    log_format: Annotated[
        Literal["console", "json"] | None, environment("CHARIOTEER_LOG_FORMAT", show=True, group=LOGGING)
    ] = None
    """Format of log lines; by default console if the log goes to a terminal, else json."""

    @property
    def worker_count(self) -> int:
        """Return `workers`, by default the number of cores that this process may use."""
        return self.workers or _cores()


@dataclass(frozen=True, kw_only=True)
class ServerSettings(OperationSettings, LimitSettings, AccessSettings, TransportSettings, ListeningSettings):
    """All settings of the server. The object of a running server also has the settings of its plugins."""

    def of(self, kind: type[T]) -> T:
        """Return the settings of a plugin, of the class that it lists in `Plugin.settings`.

        Raise TypeError if no loaded plugin lists the class.
        """
        if not isinstance(self, kind):
            raise TypeError(f"No loaded plugin has the settings {kind.__name__}")
        return self


def _cores() -> int:
    """Return the cores of the CPU affinity, or the limit of the control group (cgroup v2, cpu.max: quota, period)."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):
        return cores
