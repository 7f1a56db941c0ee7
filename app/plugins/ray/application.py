"""The service on Ray Serve. ``serve run`` takes `charioteer.ray_application`."""

from collections.abc import Mapping
from typing import Any

from app.core.engine.error_text import needs_extra
from app.core.settings.server import SettingsError

__all__ = ("ray_application",)


def ray_application(arguments: Mapping[str, object]) -> Any:
    """Build the application for ``serve run`` and for the ``import_path`` of a Ray Serve config.

    Raise SettingsError for unknown or invalid arguments, or without Ray. Raise ModelError if the arguments name no
    models.

    Args:
        arguments: as ``docs/deployment.md#ray-serve`` lists them.

    Returns:
        A ``ray.serve.Application``.
    """
    with needs_extra("Ray Serve", "ray", SettingsError):
        from app.plugins.ray.ingress import build
    return build(arguments)
