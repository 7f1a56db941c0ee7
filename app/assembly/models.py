"""Find the models of a service, and load them."""

import gc
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from app.assembly.discovery import discover, model_at, models_in
from app.assembly.manifest import check_manifest
from app.engine.model_metadata import ModelMetadata
from app.engine.servable import Servable
from app.runtimes import RUNTIMES
from app.runtimes.folder import check_folder
from app.runtimes.python import PythonRuntime
from app.runtimes.runtime import Runtime
from app.runtimes.subprocess import OnProcessLost, describe_in_subprocess, load_in_subprocess
from app.server.process_setup import configure_process, freeze_garbage
from app.settings.model import SETTINGS_FILE, ModelError, ModelSource
from app.settings.server import ModelOptions

__all__ = ("FIXTURE_MODELS", "describe", "find_models", "link_folders", "load")

FIXTURE_MODELS = Path(__file__).parents[2] / "fixtures" / "models"
"""Models that this repository trains for its tests; the default when no model is named."""


def find_models(options: ModelOptions) -> Sequence[ModelSource]:
    """Return every version of every model that `options` name.

    Raises:
        ModelError: when the options or models are invalid.
    """
    if options.model is not None and options.model_repository is not None:
        raise ModelError("Name a model or a model repository, not both")
    if options.model is not None:
        sources = model_at(options.model)
    elif options.model_repository is not None:
        sources = models_in(options.model_repository)
    elif options.model_dir is None and not FIXTURE_MODELS.is_dir():
        raise ModelError("There are no models: pass one with --model, or a folder of models with --model-repository")
    else:
        sources = discover(options.model_dir or FIXTURE_MODELS)
    policy = {
        "allow_code": options.allow_code,
        "require_manifest": options.require_manifest,
        "signing_key": options.model_signing_key,
        "links": link_folders(options.model_links),
    }
    sources = [msgspec.structs.replace(source, **policy) for source in sources]
    if options.device is not None:
        devices = tuple(device.strip() for device in options.device.split(","))
        sources = [_on_devices(source, devices) for source in sources]
    if options.isolate:
        sources = [_with_settings(source, isolate=True) for source in sources]
    if options.score_threshold is None:
        return sources
    return [_with_default(source, "score_threshold", options.score_threshold) for source in sources]


def link_folders(option: str | None) -> tuple[Path, ...]:
    """Return the folders that `--model-links` names.

    Raises:
        ModelError: when a path is not a folder.
    """
    folders = tuple(Path(part.strip()) for part in (option or "").split(",") if part.strip())
    for folder in folders:
        if not folder.is_dir():
            raise ModelError(f"--model-links: {folder} is not a folder")
    return folders


def describe(source: ModelSource) -> ModelMetadata:
    """Return the metadata of the model at `source`.

    Raises:
        ModelError: when the model cannot be read.
    """
    return (
        describe_in_subprocess(source, _describe_in_process) if _is_isolated(source) else _describe_in_process(source)
    )


def load(source: ModelSource, on_process_lost: OnProcessLost | None = None) -> Servable:
    """Load the model at `source`.

    Args:
        source: the model.
        on_process_lost: called for every subprocess that was lost, for a model that runs in its own process.

    Raises:
        ModelError: when the model cannot be served.
    """
    servable = (
        load_in_subprocess(source, _load_in_subprocess, on_process_lost)
        if _is_isolated(source)
        else _load_in_process(source)
    )
    batching = source.settings.batching
    return servable.batched(batching.max_size, batching.max_delay_ms / 1000) if batching.max_size > 1 else servable


def _is_isolated(source: ModelSource) -> bool:
    settings = source.settings
    if settings.memory_limit_bytes is not None and not settings.isolate:
        raise ModelError(f'{source.folder / SETTINGS_FILE}: "memory_limit_bytes" needs "isolate": true')
    return settings.isolate and source.fault is None


def _describe_in_process(source: ModelSource) -> ModelMetadata:
    with _as_model_error(source), _checked_files(source):
        return _runtime(source).inspect(source)


def _load_in_process(source: ModelSource) -> Servable:
    with _as_model_error(source), _checked_files(source):
        return _runtime(source).load(source)


def _load_in_subprocess(source: ModelSource) -> Servable:
    """Load the model in the subprocess that was started for it."""
    gc.disable()
    configure_process()
    servable = _load_in_process(source)
    freeze_garbage()
    return servable


@contextmanager
def _as_model_error(source: ModelSource) -> Generator[None]:
    """Turn any exception of a framework into a `ModelError`."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{source.folder} cannot be used: {type(error).__name__}: {error}") from error


@contextmanager
def _checked_files(source: ModelSource) -> Generator[None]:
    """Check a model's files before it is opened, and check that they did not change while it was loaded."""
    if source.fault is not None:
        raise ModelError(source.fault)
    check_folder(source)
    verified = check_manifest(source)
    yield
    if verified is not None:
        verified.check_unchanged()


def _runtime(source: ModelSource) -> Runtime:
    runtime_name = source.settings.runtime
    if source.settings.implementation is not None and runtime_name not in (None, PythonRuntime.name):
        raise ModelError(
            f'{source.folder / SETTINGS_FILE}: "implementation" is for the runtime "{PythonRuntime.name}", but '
            f'"runtime" is {runtime_name!r}; leave one of them out'
        )
    names = ", ".join(runtime.name for runtime in RUNTIMES)
    for runtime in RUNTIMES:
        if runtime.name == runtime_name or (runtime_name is None and runtime.recognises(source)):
            return runtime
    if runtime_name is not None:
        raise ModelError(f"{source.folder}: runtime: Expected one of {names}, got {runtime_name!r}")
    raise ModelError(f"{source.file or source.folder} is not a model of any runtime here ({names})")


def _on_devices(source: ModelSource, devices: tuple[str, ...]) -> ModelSource:
    onnxruntime = source.settings.onnxruntime
    if onnxruntime.devices is not None:
        return source
    settings = msgspec.structs.replace(
        source.settings, onnxruntime=msgspec.structs.replace(onnxruntime, devices=devices)
    )
    return msgspec.structs.replace(source, settings=settings)


def _with_settings(source: ModelSource, **changes: object) -> ModelSource:
    return msgspec.structs.replace(source, settings=msgspec.structs.replace(source.settings, **changes))


def _with_default(source: ModelSource, name: str, value: object) -> ModelSource:
    parameters = {name: value, **source.settings.parameters}
    return msgspec.structs.replace(source, settings=msgspec.structs.replace(source.settings, parameters=parameters))
