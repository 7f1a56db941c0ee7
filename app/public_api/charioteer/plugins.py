"""What plugins of third parties import: the hooks and their types, nothing else.

``docs/plugins.md`` has an example for each hook.
"""

from typing import TYPE_CHECKING

from charioteer import import_own

if TYPE_CHECKING:
    from app.core.api import *  # noqa: F403
    from app.core.hooks import *  # noqa: F403

if not TYPE_CHECKING:  # with `__getattr__`, a type checker accepts any name

    def __getattr__(name: str) -> object:
        # A plugin lists itself without the types of the server, whose frameworks take time to import.
        module = import_own("app.core.hooks")
        if name not in vars(module) and not name.startswith("_"):
            module = import_own("app.core.api")
        if name.startswith("_") or name not in vars(module):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(module, name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        hooks, api = vars(import_own("app.core.hooks")), vars(import_own("app.core.api"))
        own = [name for name, value in hooks.items() if getattr(value, "__module__", "") == hooks["__name__"]]
        return sorted(name for name in {"API", *own, *api} - {"T"} if not name.startswith("_"))
