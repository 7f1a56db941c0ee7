"""Labels for versions of models, such as ``stable``."""

from collections.abc import Iterable, Sequence

from app.core.engine.models.registry import Registration
from app.core.hooks import Host, Parts
from app.core.settings.model import ModelError, ModelSource
from app.plugins.tensorflow_serving.settings import LabelSettings


def start(host: Host) -> Parts:
    """Check that each label of a model means one version that exists, now and when a model is loaded again.

    Raise ModelError naming the model and the label.
    """
    _check_labels([registration.source for registration in host.engine.registry.registrations])
    host.engine.repository.checks.append(_check_labels)
    return Parts()


def _check_labels(sources: Sequence[ModelSource]) -> None:
    versions = {(source.name, source.version) for source in sources}
    versions_by_label: dict[tuple[str, str], str] = {}
    for source in sources:
        for label, version in source.settings.of(LabelSettings).version_labels.items():
            subject = f"Model {source.name!r}: version_labels"
            if (source.name, version) not in versions:
                raise ModelError(f"{subject}: There is no version {version!r} to be called {label!r}")
            if versions_by_label.setdefault((source.name, label), version) != version:
                raise ModelError(f"{subject}: Its versions disagree on {label!r}")


def version_with_label(versions: Iterable[Registration], label: str) -> str | None:
    """Return the version that has a label in the settings of a model's `versions`; None if none has."""
    labels = (version.source.settings.of(LabelSettings).version_labels for version in versions)
    return next((found[label] for found in labels if label in found), None)
