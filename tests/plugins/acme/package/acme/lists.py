"""An item of an extension point of the plugin `kserve_v1`."""

from collections.abc import Mapping, Sequence

from charioteer.plugins import Engine


def listed_models(engine: Engine) -> Sequence[Mapping[str, str]]:
    """Return entries of the list of models of a server."""
    return [{"id": f"acme/{name}"} for name in engine.registry.names]


LISTS = (listed_models,)
