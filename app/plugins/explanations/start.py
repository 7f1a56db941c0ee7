"""Start the workers of explanations."""

from collections.abc import Mapping

from app.core.engine.models.registry import Registry
from app.core.hooks import Host, Parts
from app.plugins.explanations.explainer import explainer_of
from app.plugins.explanations.lane import open_explanation_lane
from app.plugins.explanations.settings import ExplanationSettings


def start(host: Host) -> Parts:
    """Return the view of the page, which gets what explains each model."""
    open_explanation_lane(host.engine, host.settings.of(ExplanationSettings).explain_workers)
    return Parts(views={"explain": lambda: explainers(host.engine.registry)})


def explainers(registry: Registry) -> Mapping[str, str]:
    """Return what explains each ready model, by name: `pixels`, `words`, `numbers` or the `model` itself."""
    explained: dict[str, str] = {}
    for name in registry.names:
        servables = [version.servable for version in registry.versions(name) if version.servable is not None]
        # The latest version answers requests without one.
        if servables and (explainer := explainer_of(servables[0])) is not None:
            explained[name] = explainer
    return explained
