"""Connect drift detection to a server: embedders on ONNX Runtime, baselines and metrics."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry

from app.core.assembly.manifest import MANIFEST_FILE, checked_manifest
from app.core.engine.events import OutputAnnotator
from app.core.engine.models.registry import version_sort_key
from app.core.engine.scheduling.background import Background
from app.core.runtimes.folder import check_folder
from app.core.server.auth.watched_file import file_stamp
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.server import SettingsError
from app.plugins.drift.baseline import FILE_NAME, Baseline, read_baseline
from app.plugins.drift.hypothesis_tests import import_scipy
from app.plugins.drift.measurement import BUNDLED, Embedder
from app.plugins.drift.monitor import DriftMetrics, ModelMonitor
from app.plugins.drift.observer import DriftObserver
from app.plugins.drift.sample import DriftError
from app.plugins.drift.settings import DriftSettings

_logger = logging.getLogger(__name__)


def load_embedder(file: Path) -> Embedder:
    """Return the embedder in an ONNX file. Raise `DriftError` if it cannot be loaded, or does not take images."""
    from app.core.runtimes.onnxruntime.session import Session

    try:
        session = Session(file)
    except ModelError as error:
        raise DriftError(str(error)) from None

    def run(input_name: str, output_name: str, batch: NDArray[np.float32]) -> NDArray[Any]:
        return session.run({input_name: batch}, [output_name])[0]

    return Embedder(file, session.inputs, session.outputs, run)


def embedder_for(baseline: Baseline, folders: Sequence[Path], file: Path | None = None) -> Embedder | None:
    """Return the embedder that made a baseline; None for a baseline without embeddings.

    Its graph is `file`, if the user names one, or is searched by name in `folders`. If it is missing or has another
    digest, `DriftError` is raised.
    """
    if not baseline.embedder:
        if file:
            raise DriftError("--embedder: no effect on a baseline without embeddings; leave it out")
        return None
    candidates = [file] if file else [BUNDLED, *(folder / Path(baseline.embedder).name for folder in folders)]
    for path in filter(Path.is_file, candidates):
        embedder = load_embedder(path)
        if embedder.digest == baseline.embedder_digest:
            return embedder
    if file:
        raise DriftError(f"{file} is not the embedder that made the baseline, {baseline.embedder}")
    raise DriftError(f"The baseline's embedder is missing: put {baseline.embedder} beside it")


class Drift:
    """ModelMonitor a server for drift: provide an observer, and add the similarity of images to responses.

    A model is monitored if a `drift-baseline.npz` is in its folder or the folder above. `sources`, which returns the
    models, is called again while the server runs. Raise SettingsError when there are models but none has a baseline, or
    a baseline cannot be read.
    """

    def __init__(
        self,
        settings: DriftSettings,
        sources: Callable[[], Sequence[ModelSource]],
        registry: CollectorRegistry,
        background: Callable[..., Background] = Background,
    ) -> None:
        try:
            import_scipy()
        except DriftError as error:
            raise SettingsError(str(error)) from None
        self._settings, self._sources = settings, sources
        self._monitors: dict[str, ModelMonitor] = {}
        self._fingerprints: dict[str, tuple[object, ...]] = {}
        _, errors = self._poll()
        if errors:
            raise SettingsError(errors[0])
        # An ingress of Ray Serve gets its models later.
        if not self._monitors and sources():
            message = f"--drift needs a {FILE_NAME} in the folder of a model; `charioteer drift baseline` creates it"
            raise SettingsError(message)
        per_second = settings.drift_per_second
        self.observer = DriftObserver(
            self._monitors, DriftMetrics(registry), per_second, self._reload, background=background
        )
        self.annotators: Sequence[OutputAnnotator] = (self.observer.annotate,) if settings.drift_similarity else ()

    def close(self) -> None:
        """Stop the checks."""
        self.observer.close()

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
        files = self._files()
        changed: dict[str, ModelMonitor | None] = {}
        errors: list[str] = []
        for model in [name for name in self._monitors if name not in files]:
            del self._monitors[model], self._fingerprints[model]
            changed[model] = None
        for model, (file, source) in files.items():
            try:
                fingerprints = file, *map(file_stamp, (file, (source.root or source.folder) / MANIFEST_FILE))
                if self._fingerprints.get(model) == fingerprints:
                    continue
                self._fingerprints[model] = fingerprints
                # This runs before the model is loaded, so check the folder first: the baseline may bring its own graph.
                check_folder(source)
                window = self._settings.drift_window, self._settings.drift_seconds
                with checked_manifest(source):
                    baseline = read_baseline(file)
                    monitor = ModelMonitor(model, baseline, embedder_for(baseline, [file.parent]), *window)
                self._monitors[model] = changed[model] = monitor
            except (DriftError, ModelError, OSError) as error:
                errors.append(str(error))
        return changed, errors

    def _files(self) -> Mapping[str, tuple[Path, ModelSource]]:
        """Return the baseline of each model by name; the latest version that has one decides."""
        files_by_model: dict[str, tuple[Path, ModelSource]] = {}
        for source in sorted(self._sources(), key=lambda source: version_sort_key(source.version), reverse=True):
            files = [folder / FILE_NAME for folder in (source.folder, source.folder.parent)]
            file = next((path for path in files if path.is_file()), None)
            if file is not None:
                files_by_model.setdefault(source.name, (file, source))
        return files_by_model
