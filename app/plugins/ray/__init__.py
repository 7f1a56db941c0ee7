"""The service on Ray Serve."""

from app.core.hooks import Plugin

plugin = Plugin(
    api=1,
    extra="ray",
    public={"ray_application": "app.plugins.ray.application"},
)
