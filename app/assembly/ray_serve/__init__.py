"""The service on Ray Serve: the application that ``serve run app.assembly.ray_serve:application`` is given."""

from collections.abc import Mapping
from typing import Any

from app.settings.server import SettingsError

__all__ = ("application",)


def application(arguments: Mapping[str, object]) -> Any:
    """Build the application: what ``serve run`` and the ``import_path`` of a Serve config name.

    Args:
        arguments: see `app.assembly.ray_serve.options.RayOptions`.

    Returns:
        A ``ray.serve.Application``.

    Raises:
        SettingsError: for arguments that are not understood, or without Ray.
        ModelError: when they name no models.
    """
    try:
        import app.assembly.ray_serve.application as built
    except ImportError as error:
        raise SettingsError(f"Ray Serve needs the extra ray, pip install charioteer[ray] ({error})") from None
    return built.build(arguments)
