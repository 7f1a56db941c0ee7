"""Drift monitoring in a server: its options, and its start."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter
from cyclopts.types import PositiveFloat
from cyclopts.validators import Number

from app.core.hooks import Host, Parts
from app.core.settings.environment import environment
from app.core.settings.server import SettingsError

_DRIFT = Group("Drift", sort_key=7)


@Parameter(name="*", group=_DRIFT)
@dataclass(frozen=True, kw_only=True)
class DriftSettings:
    """Drift monitoring."""

    drift: Annotated[bool, environment("CHARIOTEER_DRIFT", show=True)] = False
    """Whether to monitor models for drift that have a drift-baseline.npz in their folder."""

    drift_embedder: Annotated[str | None, environment("CHARIOTEER_DRIFT_EMBEDDER")] = None
    """Name of a served model that makes the embeddings, as it made those of the baselines (`drift baseline
    --embedder`); by default the bundled graph, or the one beside a baseline."""

    drift_window: Annotated[int, environment("CHARIOTEER_DRIFT_WINDOW"), Parameter(validator=Number(gte=30))] = 300
    """Images in one window; drift is tested at its end."""

    drift_seconds: Annotated[PositiveFloat | None, environment("CHARIOTEER_DRIFT_SECONDS")] = None
    """Seconds after which a window with fewer images, at least 30, is tested too; by default never."""

    drift_per_second: Annotated[PositiveFloat, environment("CHARIOTEER_DRIFT_PER_SECOND")] = 20.0
    """Maximum number of images per second that are measured for drift; others are skipped."""

    drift_similarity: Annotated[bool, environment("CHARIOTEER_DRIFT_SIMILARITY")] = False
    """Whether answers contain the similarity of each image to the baseline; every image is then measured before its
    answer."""


def start(host: Host) -> Parts:
    """Return the observer and the annotators of drift, if the operator asks for them. It raises what `Drift` raises."""
    settings = host.settings.of(DriftSettings)
    if not settings.drift:
        for option, value in (("similarity", settings.drift_similarity), ("embedder", settings.drift_embedder)):
            if value:
                raise SettingsError(f"--drift-{option} needs --drift")
        return Parts()
    # Import late: servers without drift detection start faster.
    from app.plugins.drift.service import Drift

    drift = Drift(settings, host.engine.registry, host.metrics, host.engine.background)
    return Parts(
        observers=(drift.observer,),
        annotators=(drift.observer.annotate,) if settings.drift_similarity else (),
        close=lambda _: drift.observer.close(),
        views={"drift": drift.observer.windows},
    )
