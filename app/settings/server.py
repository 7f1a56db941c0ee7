"""Settings of the server, one value built at start and passed down. Nothing else reads the environment."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.types import NonNegativeInt, PositiveFloat, PositiveInt
from cyclopts.validators import Number

__all__ = ("ModelOptions", "ServerSettings", "SettingsError")


class SettingsError(Exception):
    """Settings that the server cannot be run with, with a sentence for its operator."""


def _environment(*names: str) -> Parameter:
    return Parameter(env_var=names)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which models there are. Without any of these, the fixture models of this repository."""

    model: Annotated[Path | None, _environment("CHARIOTEER_MODEL", "MODEL_PATH")] = None
    """One model: its file, or its folder."""

    model_repository: Annotated[Path | None, _environment("CHARIOTEER_MODEL_REPOSITORY")] = None
    """A folder with a folder for each model, versions as sub-folders."""

    model_dir: Annotated[Path | None, _environment("MODEL_DIR")] = None
    """Either of the two, told apart by what it holds."""

    score_threshold: Annotated[
        float | None,
        _environment("CHARIOTEER_SCORE_THRESHOLD", "DEFAULT_SCORE_THRESHOLD"),
        Parameter(validator=Number(gte=0, lte=1)),
    ] = None
    """Findings that score lower are left out, unless the request or the model's settings say otherwise."""

    device: Annotated[str | None, _environment("CHARIOTEER_DEVICE")] = None
    """Where ONNX Runtime runs models that do not say so: auto, cpu, cuda:0, tensorrt:0, openvino:GPU or coreml; several
    with commas between them."""

    allow_code: Annotated[bool, _environment("CHARIOTEER_ALLOW_CODE")] = False
    """Whether models may be Python classes, whose code then runs in the server with all of its rights."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """How the server listens, what it accepts and how it logs."""

    host: Annotated[str, _environment("CHARIOTEER_HOST", "UVICORN_HOST")] = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for every interface, as containers need."""

    port: Annotated[
        int, _environment("CHARIOTEER_HTTP_PORT", "PORT", "UVICORN_PORT"), Parameter(validator=Number(gte=0, lte=65535))
    ] = 8080
    """Port to listen on; 0 for any free one."""

    grpc: Annotated[bool, _environment("CHARIOTEER_GRPC")] = True
    """Whether to listen for gRPC too."""

    grpc_port: Annotated[int, _environment("CHARIOTEER_GRPC_PORT"), Parameter(validator=Number(gte=0, lte=65535))] = (
        8081
    )
    """Port to listen on for gRPC; 0 for any free one."""

    tensorflow_serving: Annotated[bool, _environment("CHARIOTEER_TENSORFLOW_SERVING")] = True
    """Whether to listen for TensorFlow Serving's REST API too."""

    tensorflow_serving_port: Annotated[
        int, _environment("CHARIOTEER_TENSORFLOW_SERVING_PORT"), Parameter(validator=Number(gte=0, lte=65535))
    ] = 8501
    """Port to listen on for TensorFlow Serving's REST API; 0 for any free one."""

    tensorflow_serving_cors: Annotated[bool, _environment("CHARIOTEER_TENSORFLOW_SERVING_CORS")] = False
    """Whether pages of any origin may read the answers of TensorFlow Serving's REST API."""

    chariot_protocol: Annotated[
        Literal["chariot-v2-kserve", "chariot-v2"],
        _environment("CHARIOTEER_CHARIOT_PROTOCOL", "CHARIOT_INFERENCE_PROTOCOL"),
    ] = "chariot-v2-kserve"
    """Which of Chariot's protocols answers on its paths."""

    max_request_bytes: Annotated[PositiveInt, _environment("CHARIOTEER_MAX_REQUEST_BYTES")] = 64 * 1024 * 1024
    """A larger body is refused with 413."""

    max_pixels: Annotated[PositiveInt, _environment("CHARIOTEER_MAX_PIXELS")] = 64_000_000
    """An image of more pixels is refused from its header, before it is decoded."""

    max_request_pixels: Annotated[PositiveInt, _environment("CHARIOTEER_MAX_REQUEST_PIXELS")] = 256_000_000
    """A request whose images have more pixels together is refused."""

    max_inputs: Annotated[PositiveInt, _environment("CHARIOTEER_MAX_INPUTS")] = 256
    """A request of more images or texts is refused."""

    repository_poll_seconds: Annotated[PositiveFloat | None, _environment("CHARIOTEER_REPOSITORY_POLL_SECONDS")] = None
    """How often to look for changed models on disk; never when absent."""

    workers: Annotated[PositiveInt | None, _environment("CHARIOTEER_WORKERS")] = None
    """Threads that decode, run and encode; one for each core, or for each CPU of a container's quota, when absent."""

    max_waiting: Annotated[PositiveInt, _environment("CHARIOTEER_MAX_WAITING")] = 128
    """Requests that may wait for a worker; the next one is refused with 429."""

    max_waiting_each: Annotated[NonNegativeInt | None, _environment("CHARIOTEER_MAX_WAITING_EACH")] = None
    """So many of them may be for one model; half of them when absent and there is more than one model."""

    max_queue_seconds: Annotated[PositiveFloat | None, _environment("CHARIOTEER_MAX_QUEUE_SECONDS")] = None
    """A request that is likely to wait longer for a worker is refused with 429; however long when absent."""

    request_timeout: Annotated[PositiveFloat, _environment("CHARIOTEER_REQUEST_TIMEOUT")] = 300.0
    """Seconds after which a request is given up with 504; its sender may give it less, never more."""

    explain_workers: Annotated[PositiveInt, _environment("CHARIOTEER_EXPLAIN_WORKERS")] = 1
    """Threads that make explanations, beside the others and at a lower priority."""

    max_explanation_samples: Annotated[PositiveInt, _environment("CHARIOTEER_MAX_EXPLANATION_SAMPLES")] = 2000
    """Masked copies of images that a model is shown to explain one request; a request for more is refused."""

    max_explanation_seconds: Annotated[PositiveFloat, _environment("CHARIOTEER_MAX_EXPLANATION_SECONDS")] = 30.0
    """Seconds after which an explanation makes do with the samples that it has."""

    page: Annotated[bool | None, _environment("CHARIOTEER_PAGE")] = None
    """Whether to show the page to browsers, at /; when absent, only where the server listens on a loopback address."""

    page_admin: Annotated[bool | None, _environment("CHARIOTEER_PAGE_ADMIN")] = None
    """Whether the page may load and unload models; when absent, only in a browser on the same machine, of a server that
    listens on a loopback address."""

    drift: Annotated[bool, _environment("CHARIOTEER_DRIFT")] = False
    """Whether models with a drift-baseline.npz in their folder are watched for drift."""

    drift_window: Annotated[int, _environment("CHARIOTEER_DRIFT_WINDOW"), Parameter(validator=Number(gte=30))] = 300
    """Images after which drift is judged, and the next window begins."""

    drift_seconds: Annotated[PositiveFloat | None, _environment("CHARIOTEER_DRIFT_SECONDS")] = None
    """Seconds after which a window of fewer images, 30 at least, is judged too; never when absent."""

    drift_per_second: Annotated[PositiveFloat, _environment("CHARIOTEER_DRIFT_PER_SECOND")] = 20.0
    """Images that are measured for drift each second, at most; the others are passed over."""

    drift_similarity: Annotated[bool, _environment("CHARIOTEER_DRIFT_SIMILARITY")] = False
    """Whether answers say how much each image is like the baseline; every image is measured before it is answered."""

    drift_webhook: Annotated[str | None, _environment("CHARIOTEER_DRIFT_WEBHOOK")] = None
    """Where to post it, as JSON, when a model begins to drift or no longer does."""

    drain_timeout: Annotated[PositiveInt, _environment("CHARIOTEER_DRAIN_TIMEOUT")] = 30
    """Seconds that requests in flight are given to finish when the server is told to stop."""

    record: Annotated[str | None, _environment("CHARIOTEER_RECORD")] = None
    """Where to record every inference: a file (SQLite), or postgresql://<user>@<host>/<database>; off when absent."""

    record_mode: Annotated[Literal["acknowledge", "best-effort"], _environment("CHARIOTEER_RECORD_MODE")] = (
        "acknowledge"
    )
    """Whether answers wait until they are recorded, and are refused if they cannot be; or what cannot be is dropped."""

    record_images: Annotated[Path | None, _environment("CHARIOTEER_RECORD_IMAGES")] = None
    """A folder to keep the images in, each once; only their digests are recorded when absent."""

    record_sample: Annotated[
        float, _environment("CHARIOTEER_RECORD_SAMPLE"), Parameter(validator=Number(gt=0, lte=1))
    ] = 1.0
    """The share of requests that are recorded."""

    record_keep: Annotated[PositiveFloat | None, _environment("CHARIOTEER_RECORD_KEEP")] = None
    """Days after which records are deleted; never when absent."""

    record_keep_images: Annotated[PositiveFloat | None, _environment("CHARIOTEER_RECORD_KEEP_IMAGES")] = None
    """Days after which images are deleted, not more than their records are kept; as long as those when absent."""

    record_redact: Annotated[str, _environment("CHARIOTEER_RECORD_REDACT")] = ""
    """Keys of metadata and parameters, separated by commas, whose values are left out of records, however deep."""

    record_queue: Annotated[PositiveInt, _environment("CHARIOTEER_RECORD_QUEUE")] = 1024
    """Requests that may wait to be recorded."""

    serve_inferences: Annotated[bool | None, _environment("CHARIOTEER_SERVE_INFERENCES")] = None
    """Whether to show what was recorded, pictures too, at /inferences; only on a loopback address when absent."""

    otlp_endpoint: Annotated[str | None, _environment("CHARIOTEER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")] = None
    """Where to send traces: the base address of an OTLP collector over HTTP. Needs the extra otel."""

    log_format: Annotated[Literal["console", "json"] | None, _environment("CHARIOTEER_LOG_FORMAT")] = None
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
