"""Connect drift detection to a server: embedders on ONNX Runtime, baselines and metrics."""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry

from app.core.assembly.discovery import latest_version
from app.core.assembly.manifest import MANIFEST_FILE, checked_manifest, manifest_files
from app.core.assembly.models import describe
from app.core.engine.error_text import list_choices
from app.core.engine.models.registry import Registry, version_sort_key
from app.core.engine.models.servable import Servable, call_model
from app.core.engine.scheduling.background import Background
from app.core.runtimes.folder import check_folder
from app.core.server.auth.watched_file import file_stamp
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.server import SettingsError
from app.plugins.drift.baseline import FILE_NAME, Baseline, read_baseline
from app.plugins.drift.hypothesis_tests import import_scipy
from app.plugins.drift.measurement import BUNDLED, Embedder, as_vectors, embedding_output
from app.plugins.drift.monitor import DriftMetrics, ModelMonitor
from app.plugins.drift.observer import DriftObserver
from app.plugins.drift.sample import DriftError
from app.plugins.drift.settings import DriftSettings
from metadata.model import ModelMetadata
from tasks.task import TaskType
from tasks.tensor_inference import ImageTensorInput, Tensors
from tasks.vision.image import Image

_logger = logging.getLogger(__name__)


class ModelEmbedder:
    """Compute one embedding for each image with a model that takes images and returns vectors (TENSOR).

    The model does its own preprocessing; `servable` returns it loaded. Baselines store the name of the model, and the
    SHA-256 of its files as `digest`. Raise DriftError for another model, and ModelError if a file is not its own.
    """

    def __init__(self, source: ModelSource, description: ModelMetadata, servable: Callable[[], Servable]) -> None:
        if description.task_type is not TaskType.TENSOR or not description.takes_images:
            found = f"{description.task_type} for {description.takes}s"
            raise DriftError(f"The model {source.name!r} makes no embeddings: Expected TENSOR for images, got {found}")
        digests = [
            f"{file.path.name} {hashlib.sha256(file.path.read_bytes()).hexdigest()}"
            for file in manifest_files(source)
            if file.path.name != FILE_NAME
        ]
        self.name, self.digest = source.name, hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()
        self._servable = servable

    def __call__(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Return embeddings of shape (len(images), d)."""
        servable = self._servable()
        index = servable.outputs.index(embedding_output(servable.outputs))
        answers: Sequence[Tensors] = call_model(servable.model, [ImageTensorInput(image) for image in images])
        return as_vectors(np.stack([answer.tensors[index].values for answer in answers]))


def load_embedder(file: Path) -> Embedder:
    """Return the embedder in an ONNX file. Raise `DriftError` if it cannot be loaded, or does not take images."""
    from app.core.runtimes.onnxruntime.session import Session

    try:
        return Embedder(Session(file))
    except ModelError as error:
        raise DriftError(str(error)) from None


def embedder_for(
    baseline: Baseline, folders: Sequence[Path], given: Embedder | ModelEmbedder | None = None
) -> Embedder | ModelEmbedder | None:
    """Return the embedder that made a baseline; None for a baseline without embeddings.

    It is `given`, if the user names one, or a graph that is searched by name in `folders`. If it is missing or has
    another digest, `DriftError` is raised.
    """
    if not baseline.embedder:
        return None
    if given is not None:
        if given.digest != baseline.embedder_digest:
            raise DriftError(f"{given.name} is not the embedder that made the baseline, {baseline.embedder}")
        return given
    for path in (BUNDLED, *(folder / Path(baseline.embedder).name for folder in folders)):
        if path.is_file() and (embedder := load_embedder(path)).digest == baseline.embedder_digest:
            return embedder
    advice = "put the graph beside it, or pass the folder of the model (--embedder; serve: --drift-embedder NAME)"
    raise DriftError(f"The baseline's embedder, {baseline.embedder}, is missing: {advice}")


class Drift:
    """Monitor a server for drift by an observer, with the baselines of its models.

    A model of `models` is monitored if a `drift-baseline.npz` is in its folder or the folder above. Raise SettingsError
    when there are models but none has a baseline, or a baseline or its embedder cannot be used.
    """

    def __init__(
        self,
        settings: DriftSettings,
        models: Registry,
        registry: CollectorRegistry,
        background: Callable[..., Background] = Background,
    ) -> None:
        try:
            import_scipy()
        except DriftError as error:
            raise SettingsError(str(error)) from None
        self._settings, self._models = settings, models
        self._monitors: dict[str, ModelMonitor] = {}
        self._fingerprints: dict[str, tuple[object, ...]] = {}
        _, errors = self._poll()
        if errors:
            raise SettingsError(errors[0])
        # An ingress of Ray Serve gets its models later.
        if not self._monitors and self._sources():
            message = f"--drift needs a {FILE_NAME} in the folder of a model; `charioteer drift baseline` creates it"
            raise SettingsError(message)
        per_second = settings.drift_per_second
        self.observer = DriftObserver(
            self._monitors, DriftMetrics(registry), per_second, self._reload, background=background
        )

    def _reload(self) -> Mapping[str, ModelMonitor | None]:
        changed, errors = self._poll()
        for error in errors:
            _logger.warning("drift baseline not reloaded: %s", error)
        for model, monitor in changed.items():
            _logger.info("%s %s", model, "is monitored with a new baseline" if monitor else "is no longer monitored")
        return changed

    def _poll(self) -> tuple[Mapping[str, ModelMonitor | None], Sequence[str]]:
        """Return monitors of new and changed baselines by model, None for removed ones; and errors of unusable ones.

        Unusable ones are read again only after their files change. Until then the previous baseline stays active.
        """
        files, served = self._files(), self._embedder_source()
        stamp = None if served is None else (served.version, *manifest_files(served))
        embedder: ModelEmbedder | None = None
        changed: dict[str, ModelMonitor | None] = {}
        errors: list[str] = []
        for model in [name for name in self._monitors if name not in files]:
            del self._monitors[model], self._fingerprints[model]
            changed[model] = None
        for model, (file, source) in files.items():
            try:
                fingerprints = file, *map(file_stamp, (file, (source.root or source.folder) / MANIFEST_FILE)), stamp
                if self._fingerprints.get(model) == fingerprints:
                    continue
                self._fingerprints[model] = fingerprints
                # This runs before the model is loaded, so check the folder first: the baseline may bring its own graph.
                check_folder(source)
                window = self._settings.drift_window, self._settings.drift_seconds
                with checked_manifest(source):
                    baseline = read_baseline(file)
                    if self._settings.drift_embedder is not None:
                        embedder = embedder or self._load_embedder(served)
                    monitor = ModelMonitor(model, baseline, embedder_for(baseline, [file.parent], embedder), *window)
                self._monitors[model] = changed[model] = monitor
            except (DriftError, ModelError, OSError) as error:
                errors.append(str(error))
        return changed, errors

    def _sources(self) -> Sequence[ModelSource]:
        return [registration.source for registration in self._models.registrations if registration.enabled]

    def _embedder_source(self) -> ModelSource | None:
        versions = [source for source in self._sources() if source.name == self._settings.drift_embedder]
        return latest_version(versions) if versions else None

    def _load_embedder(self, source: ModelSource | None) -> ModelEmbedder:
        """Return the embedder that --drift-embedder names, which is served. It may still load after this."""
        if source is None:
            names = list_choices(sorted({model.name for model in self._sources()}))
            got = f"got {self._settings.drift_embedder!r}"
            raise DriftError(f"--drift-embedder: Expected the name of a served model ({names}), {got}")
        find = partial(self._models.find, source.name, source.version)
        return ModelEmbedder(source, describe(source), lambda: find().ready_servable())

    def _files(self) -> Mapping[str, tuple[Path, ModelSource]]:
        """Return the baseline of each model by name; the latest version that has one decides."""
        files_by_model: dict[str, tuple[Path, ModelSource]] = {}
        for source in sorted(self._sources(), key=lambda source: version_sort_key(source.version), reverse=True):
            files = [folder / FILE_NAME for folder in (source.folder, source.folder.parent)]
            file = next((path for path in files if path.is_file()), None)
            if file is not None:
                files_by_model.setdefault(source.name, (file, source))
        return files_by_model
