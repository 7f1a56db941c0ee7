"""The service on Ray Serve. ``serve run`` takes `charioteer.ray_application`, which calls `application`."""

from collections.abc import Mapping
from typing import Any

from app.engine.error_text import missing_extra
from app.settings.server import SettingsError

__all__ = ("application",)


def application(arguments: Mapping[str, object]) -> Any:
    """Build the application.

    Args:
        arguments: fields of `app.assembly.ray_serve.options.RayOptions` and `app.settings.server.ModelOptions`.

    Returns:
        A ``ray.serve.Application``.

    Raises:
        SettingsError: for invalid arguments, or without Ray.
        ModelError: when there are no models.
    """
    try:
        from app.assembly.ray_serve.ingress import build
    except ImportError as error:
        raise SettingsError(missing_extra("Ray Serve", "ray", error)) from None
    return build(arguments)
