"""``charioteer plugins``."""

from app.core.cli.terminal import console, printable, table
from app.core.plugins import registry


def plugins() -> None:
    """List the plugins that are loaded, those that are skipped with the reason, and those that could be enabled.

    Built-in plugins load always. Installed plugins of others load if `--plugins` or CHARIOTEER_PLUGINS names them,
    because their code has all rights of the server.
    """
    found = registry()
    shown = table("plugin", "state", "what it adds")
    for plugin in found.loaded.values():
        extra = f" (extra {plugin.extra})" if plugin.extra else ""
        shown.add_row(*map(printable, (plugin.name, "loaded", f"{plugin.summary}{extra}")))
    for name, reason in found.unused().items():
        shown.add_row(*map(printable, (name, "skipped" if name in found.skipped else "not enabled", reason)))
    console().print(shown)
