"""Find the models of a service, and load them."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from app.core.assembly.discovery import discover, model_at, models_in, name_only_model
from app.core.assembly.manifest import checked_manifest
from app.core.engine.models.memory import LoadMeter
from app.core.engine.models.servable import Servable
from app.core.engine.scheduling.batching import BatchingRunner
from app.core.hooks import Runtime
from app.core.plugins import registry
from app.core.runtimes.folder import check_folder
from app.core.runtimes.foreign_formats import advice_for, advice_in
from app.core.runtimes.runtime import PYTHON
from app.core.settings.model import SETTINGS_FILE, ModelError, ModelSource
from app.core.settings.server import DEMO_MODELS, IS_CHECKOUT, ModelOptions
from metadata.model import ModelMetadata

_load_meter = LoadMeter()


def find_models(options: ModelOptions) -> Sequence[ModelSource]:
    """Return every version of every model that `options` name.

    Raise ModelError when the options or models are invalid.
    """
    if options.demo + (options.model is not None) + (options.model_repository is not None) > 1:
        raise ModelError("Use one of --model, --model-repository and --demo")
    if options.demo:
        sources = _demo_models()
    elif options.model is not None:
        sources = model_at(options.model)
    elif options.model_repository is not None:
        sources = models_in(options.model_repository)
    elif options.model_dir is None and not IS_CHECKOUT:
        raise ModelError(
            "There are no models: pass one with --model, a folder of models with --model-repository, or --demo"
        )
    else:
        sources = discover(options.model_dir or DEMO_MODELS)
    if options.model_name is not None:
        sources = name_only_model(sources, options.model_name)
    links = tuple(Path(part.strip()) for part in (options.model_links or "").split(",") if part.strip())
    for folder in links:
        if not folder.is_dir():
            raise ModelError(f"--model-links: {folder} is not a folder")
    return [_configured(source, options, links) for source in sources]


def _demo_models() -> list[ModelSource]:
    """Return the models that ``demo.txt`` names, one a line: a folder, or a name, a package and a file in it."""
    sources: list[ModelSource] = []
    for line in (DEMO_MODELS / "demo.txt").read_text().splitlines():
        name, *place = line.split()
        if not place:
            sources += model_at(DEMO_MODELS / name)
        elif (package := find_spec(place[0])) is not None and package.origin is not None:
            file = Path(package.origin).parent / place[1]
            sources += [msgspec.structs.replace(model_at(file)[0], name=name)] if file.is_file() else []
    return sources


def _configured(source: ModelSource, options: ModelOptions, links: tuple[Path, ...]) -> ModelSource:
    """Return the model with the operator's rules and defaults."""
    settings = source.settings
    changes: dict[str, object] = {}
    if options.device is not None and settings.onnxruntime.devices is None:
        devices = tuple(device.strip() for device in options.device.split(","))
        changes["onnxruntime"] = msgspec.structs.replace(settings.onnxruntime, devices=devices)
    if options.score_threshold is not None:
        changes["parameters"] = {"score_threshold": options.score_threshold, **settings.parameters}
    return msgspec.structs.replace(
        source,
        settings=msgspec.structs.replace(settings, **changes),
        allow_code=options.allow_code,
        require_manifest=options.require_manifest,
        signing_key=options.model_signing_key,
        links=links,
        options=tuple(options.of(kind) for plugin in registry().loaded.values() for kind in plugin.model_options),
    )


def describe(source: ModelSource) -> ModelMetadata:
    """Return the metadata of the model at `source`. Raise ModelError when the model cannot be read."""
    return through_loaders(source, "inspect", _inspect)


def load(source: ModelSource) -> Servable:
    """Load the model at `source`. Raise ModelError when the model cannot be served."""
    servable = through_loaders(source, "load", _load)
    batching = source.settings.batching
    if batching.max_size > 1:
        servable.runner = BatchingRunner(servable.runner, batching.max_size, batching.max_delay_ms / 1000)
    return servable


def through_loaders(source: ModelSource, method: str, function: Any, *, remote: bool = False) -> Any:
    """Call `function` inside a method of each loader that accepts the model; `remote` if another process loads it.

    What loads the model elsewhere comes first: the steps that other loaders add to a servable belong to this process.
    """
    found = [loader for loader in registry().loaders if source.fault is None and not (remote and loader.elsewhere)]
    accepting = [loader for loader in found if loader.accepts(source)]
    for loader in sorted(accepting, key=lambda loader: not loader.elsewhere):
        function = partial(_inside, getattr(loader, method), function)
    return function(source)


def _inside(step: Any, function: Any, source: ModelSource) -> Any:
    # A function of the module: isolation passes it to another process.
    return step(source, function)


def _inspect(source: ModelSource) -> ModelMetadata:
    with _runtime_for(source) as runtime:
        return runtime.inspect(source)


def _load(source: ModelSource) -> Servable:
    with _runtime_for(source) as runtime:
        servable, servable.loaded_bytes = _load_meter.measure(partial(runtime.load, source))
        return servable


@contextmanager
def _runtime_for(source: ModelSource) -> Generator[Runtime]:
    """Check a model's files, yield its runtime, and check that the files did not change while it was loaded.

    Raise ModelError for a model that cannot be used, and for any exception of a framework.
    """
    try:
        if source.fault is not None:
            raise ModelError(source.fault)
        check_folder(source)
        with checked_manifest(source):
            yield _runtime(source)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{source.folder} cannot be used: {type(error).__name__}: {error}") from error


def _runtime(source: ModelSource) -> Runtime:
    runtime_name = source.settings.runtime
    if source.settings.implementation is not None and runtime_name not in (None, PYTHON.name):
        raise ModelError(
            f'{source.folder / SETTINGS_FILE}: "implementation" is for the runtime "{PYTHON.name}", but '
            f'"runtime" is {runtime_name!r}; leave one of them out'
        )
    # Runtimes for different models may share one name; the last of them is for models that none recognises.
    runtimes = [runtime for runtime in registry().runtimes if runtime_name in (None, runtime.name)]
    recognising = (runtime for runtime in runtimes if runtime.recognises(source))
    chosen = next(recognising, runtimes[-1] if runtime_name is not None and runtimes else None)
    if chosen is not None:
        _check_precision(source, chosen)
        return chosen
    names = ", ".join(dict.fromkeys(runtime.name for runtime in registry().runtimes))
    if runtime_name is not None:
        advice = registry().advice()
        raise ModelError(f"{source.folder}: runtime: Expected one of {names}, got {runtime_name!r}{advice}")
    if source.file is not None and (advice := advice_for(source.file)):
        raise ModelError(f"{source.file} {advice}")
    advice = advice_in(source.folder) if source.file is None else ""
    raise ModelError(f"{source.file or source.folder} is not a model of any runtime here ({names}){advice}")


def _check_precision(source: ModelSource, runtime: Runtime) -> None:
    precision = source.settings.precision
    if precision == "fp32" or precision in runtime.precisions:
        return
    supporting = [f'"{other.name}"' for other in registry().runtimes if precision in other.precisions]
    needed = f'"runtime": {" or ".join(dict.fromkeys(supporting))}' if supporting else "a plugin with such a runtime"
    raise ModelError(
        f'{source.folder / SETTINGS_FILE}: "precision": "{precision}" needs {needed}; the runtime is {runtime.name}'
    )
