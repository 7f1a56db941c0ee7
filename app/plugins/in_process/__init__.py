"""A model in the calling process, without a server: for tests, notebooks and evaluations."""

from app.core.hooks import Plugin

plugin = Plugin(
    api=1,
    public={"InProcessModel": "app.plugins.in_process.model"},
)
