"""The service on Ray Serve. ``serve run`` takes `charioteer.ray_application`, which calls `application`."""

from collections.abc import Mapping
from typing import Any

from app.core.engine.error_text import needs_extra
from app.core.settings.server import SettingsError

__all__ = ("application",)


def application(arguments: Mapping[str, object]) -> Any:
    """Build the application, as `charioteer.ray_application` describes."""
    with needs_extra("Ray Serve", "ray", SettingsError):
        from app.plugins.ray.ingress import build
    return build(arguments)
