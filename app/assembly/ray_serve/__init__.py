"""The service on Ray Serve. ``serve run`` takes `charioteer.ray_application`, which calls `application`."""

from collections.abc import Mapping
from typing import Any

from app.engine.error_text import missing_extra
from app.settings.server import SettingsError

__all__ = ("application",)


def application(arguments: Mapping[str, object]) -> Any:
    """Build the application, as `charioteer.ray_application` describes."""
    try:
        from app.assembly.ray_serve.ingress import build
    except ImportError as error:
        raise SettingsError(missing_extra("Ray Serve", "ray", error)) from None
    return build(arguments)
