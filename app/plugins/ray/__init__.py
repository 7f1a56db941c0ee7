"""The service on Ray Serve."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=2,
    extra="ray",
    public={"ray_application": Ref("app.plugins.ray.application:ray_application")},
)
