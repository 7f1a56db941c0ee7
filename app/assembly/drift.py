"""Drift, wired: embedders run by ONNX Runtime, and what watches a server."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry

from app.drift.baseline import FILE_NAME, Baseline, read_baseline
from app.drift.embedding import BUNDLED, Embedder
from app.drift.monitor import Monitor, Watched, Window
from app.drift.sample import DriftError
from app.drift.webhook import Webhook, alert_of
from app.engine.events import Addition
from app.engine.registry import version_order
from app.observers.drift import DriftMetrics, DriftWatch, Similarity
from app.settings.model import ModelError, ModelSource
from app.settings.server import ServerSettings, SettingsError

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
        sources: its models; those with a `drift-baseline.npz` in their folder, or in the one above, are watched.
        registry: where the metrics are registered.

    Raises:
        SettingsError: when no model has a baseline, or one cannot be read.
    """

    def __init__(self, settings: ServerSettings, sources: Sequence[ModelSource], registry: CollectorRegistry) -> None:
        watched = _watched(sources)
        if not watched:
            message = f"--drift needs a {FILE_NAME} in the folder of a model; `charioteer drift baseline` makes it"
            raise SettingsError(message)
        metrics = DriftMetrics(registry)
        self._webhook = _webhook(settings.drift_webhook, metrics)
        monitors = {
            name: Monitor(each, settings.drift_window, settings.drift_seconds) for name, each in watched.items()
        }
        self.watch = DriftWatch(monitors, metrics, settings.drift_per_second, self._alarmed)
        self.additions: Sequence[Addition] = (Similarity(watched, self.watch),) if settings.drift_similarity else ()

    def close(self) -> None:
        """Judge nothing more, and send nothing more."""
        self.watch.close()
        if self._webhook is not None:
            self._webhook.close()

    def _alarmed(self, window: Window) -> None:
        if self._webhook is not None:
            self._webhook.send(alert_of(window))


def _watched(sources: Sequence[ModelSource]) -> dict[str, Watched]:
    """By the models' names; of several versions the latest that has a baseline."""
    found: dict[str, Watched] = {}
    for source in sorted(sources, key=lambda each: version_order(each.version), reverse=True):
        files = [folder / FILE_NAME for folder in (source.folder, source.folder.parent)]
        file = next((each for each in files if each.is_file()), None)
        if file is None or source.name in found:
            continue
        try:
            baseline = read_baseline(file)
            found[source.name] = Watched(source.name, baseline, embedder_of(baseline, [file.parent]))
        except DriftError as error:
            raise SettingsError(str(error)) from None
    return found


def _webhook(url: str | None, metrics: DriftMetrics) -> Webhook | None:
    if url is None:
        return None
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise SettingsError("--drift-webhook: Expected a URL that begins with http:// or https://")
    return Webhook(url, lambda outcome: metrics.alerts.labels(outcome).inc())
