"""Start drift detection, if the operator asks for it."""

from app.core.hooks import Host, Parts
from app.core.settings.server import SettingsError
from app.plugins.drift.settings import DriftSettings


def start(host: Host) -> Parts:
    """Return the observer and the annotators of drift, if the operator asks for them. Errors are those of `Drift`."""
    settings, registry = host.settings.of(DriftSettings), host.engine.registry
    if not settings.drift:
        for name, value in (("similarity", settings.drift_similarity), ("webhook", settings.drift_webhook)):
            if value:
                raise SettingsError(f"--drift-{name} needs --drift")
        return Parts()
    # Import late: servers without drift detection start faster.
    from app.plugins.drift.service import Drift

    drift = Drift(
        settings,
        lambda: [registration.source for registration in registry.registrations if registration.enabled],
        host.metrics,
        host.engine.background,
    )
    return Parts(
        observers=(drift.observer,),
        annotators=drift.annotators,
        close=lambda _: drift.close(),
        views={"drift": drift.observer.windows},
    )
