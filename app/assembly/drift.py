"""Drift, wired: embedders run by ONNX Runtime, and what watches a server."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry

from app.assembly.manifest import MANIFEST_FILE, check_manifest
from app.drift.baseline import FILE_NAME, Baseline, read_baseline
from app.drift.embedding import BUNDLED, Embedder
from app.drift.monitor import Monitor, Watched, Window
from app.drift.sample import DriftError
from app.drift.webhook import Webhook, alert_of
from app.engine.events import Addition
from app.engine.registry import version_order
from app.observers.drift import DriftWatch, Similarity
from app.observers.drift_metrics import DriftMetrics
from app.runtimes.folder import check_folder
from app.settings.model import ModelError, ModelSource
from app.settings.server import ServerSettings, SettingsError

_logger = logging.getLogger(__name__)

__all__ = ("Drift", "embedder_at", "embedder_of")


def embedder_at(file: Path) -> Embedder:
    """The embedder in an ONNX file.

    Raises:
        DriftError: when it cannot be loaded, or takes no images.
    """
    from app.runtimes.onnxruntime.session import Session

    try:
        session = Session(file)
    except ModelError as error:
        raise DriftError(str(error)) from None

    def run(given: str, wanted: str, batch: NDArray[np.float32]) -> NDArray[Any]:
        return session.run({given: batch}, [wanted])[0]

    return Embedder(file, session.inputs, session.outputs, run)


def embedder_of(baseline: Baseline, folders: Sequence[Path], file: Path | None = None) -> Embedder | None:
    """The embedder that a baseline was made with; None for a baseline without embeddings.

    Args:
        baseline: has its name and digest.
        folders: where to look for a graph of that name.
        file: the graph, when it is named.

    Raises:
        DriftError: when it is not there, or another one.
    """
    if not baseline.embedder:
        return None
    places = [file] if file else [BUNDLED, *(folder / Path(baseline.embedder).name for folder in folders)]
    found = [place for place in places if place.is_file()]
    for place in found:
        embedder = embedder_at(place)
        if embedder.digest == baseline.embedder_digest:
            return embedder
    if file:
        raise DriftError(f"{file} is not the embedder that the baseline was made with, {baseline.embedder}")
    raise DriftError(f"The baseline's embedder is not here: put {baseline.embedder} beside it")


class Drift:
    """Everything that watches a server for drift: an observer, and what is added to answers.

    Args:
        settings: of the server, with `drift` on.
        sources: its models, asked again while it serves; those with a `drift-baseline.npz` in their folder, or in the
            one above, are watched.
        registry: where the metrics are registered.

    Raises:
        SettingsError: when no model has a baseline, or one cannot be read.
    """

    def __init__(
        self, settings: ServerSettings, sources: Callable[[], Sequence[ModelSource]], registry: CollectorRegistry
    ) -> None:
        baselines = _Baselines(sources)
        _, wrong = baselines.changed()
        if wrong:
            raise SettingsError(wrong[0])
        if not baselines.watched:
            message = f"--drift needs a {FILE_NAME} in the folder of a model; `charioteer drift baseline` makes it"
            raise SettingsError(message)
        metrics = DriftMetrics(registry)
        self._webhook = _webhook(settings.drift_webhook, metrics)
        self._baselines = baselines
        self._settings = settings
        monitors = {name: self._monitor(each) for name, each in baselines.watched.items()}
        self.watch = DriftWatch(monitors, metrics, settings.drift_per_second, self._alarmed, self._look)
        self.additions: Sequence[Addition] = (
            (Similarity(baselines.watched, self.watch),) if settings.drift_similarity else ()
        )

    def close(self) -> None:
        """Judge nothing more, and send nothing more."""
        self.watch.close()
        if self._webhook is not None:
            self._webhook.close()

    def _monitor(self, watched: Watched) -> Monitor:
        return Monitor(watched, self._settings.drift_window, self._settings.drift_seconds)

    def _look(self) -> Mapping[str, Monitor | None]:
        changed, wrong = self._baselines.changed()
        for each in wrong:
            _logger.warning("a baseline cannot be used, and the one before stays: %s", each)
        for model, found in changed.items():
            _logger.info("%s %s", model, "is watched by a new baseline" if found else "is watched no longer")
        return {model: None if found is None else self._monitor(found) for model, found in changed.items()}

    def _alarmed(self, window: Window) -> None:
        if self._webhook is not None:
            self._webhook.send(alert_of(window))


class _Baselines:
    """The models that have a baseline, as it lies on disk.

    Args:
        sources: all models.

    Attributes:
        watched: by the models' names; of several versions the latest that has a baseline.
    """

    def __init__(self, sources: Callable[[], Sequence[ModelSource]]) -> None:
        self.watched: dict[str, Watched] = {}
        self._sources = sources
        self._prints: dict[str, tuple[object, ...]] = {}

    def changed(self) -> tuple[Mapping[str, Watched | None], Sequence[str]]:
        """Read what is new or another one than before.

        Returns:
            By the models' names, None for what is gone; and why others cannot be used. These are not tried again until
            their files change, and what they were before stays.
        """
        files = self._files()
        changed: dict[str, Watched | None] = {}
        wrong: list[str] = []
        for model in [each for each in self.watched if each not in files]:
            del self.watched[model], self._prints[model]
            changed[model] = None
        for model, (file, source) in files.items():
            try:
                prints = file, *map(_print, (file, (source.root or source.folder) / MANIFEST_FILE))
                if self._prints.get(model) == prints:
                    continue
                self._prints[model] = prints
                # It is read before the model is loaded, and may bring a graph of its own.
                check_folder(source)
                check_manifest(source)
                baseline = read_baseline(file)
                changed[model] = self.watched[model] = Watched(model, baseline, embedder_of(baseline, [file.parent]))
            except (DriftError, ModelError, OSError) as error:
                wrong.append(str(error))
        return changed, wrong

    def _files(self) -> Mapping[str, tuple[Path, ModelSource]]:
        found: dict[str, tuple[Path, ModelSource]] = {}
        for source in sorted(self._sources(), key=lambda each: version_order(each.version), reverse=True):
            files = [folder / FILE_NAME for folder in (source.folder, source.folder.parent)]
            file = next((each for each in files if each.is_file()), None)
            if file is not None:
                found.setdefault(source.name, (file, source))
        return found


def _print(file: Path) -> object:
    """Another one when the file is; None where there is none."""
    if not file.is_file():
        return None
    status = file.stat()
    return status.st_mtime_ns, status.st_size


def _webhook(url: str | None, metrics: DriftMetrics) -> Webhook | None:
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise SettingsError("--drift-webhook: Expected a URL that begins with http:// or https://")
    return Webhook(url, lambda outcome: metrics.alerts.labels(outcome).inc())
