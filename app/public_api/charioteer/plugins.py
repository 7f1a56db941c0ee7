"""What plugins of third parties import: the hooks and their types, nothing else.

``docs/plugins.md`` has an example for each hook.
"""

from typing import TYPE_CHECKING

from charioteer import import_own

if TYPE_CHECKING:
    from app.core.api import (
        Classification,
        CollectorRegistry,
        Endpoint,
        Engine,
        Fact,
        HTTPRouteHandler,
        Identity,
        IdentityProvider,
        ImageClassification,
        InferenceObserver,
        InferenceResult,
        ModelMetadata,
        ModelSource,
        Origin,
        OutputAnnotator,
        RecordSink,
        RequestContext,
        Servable,
        ServerSettings,
        TaskType,
        command_options,
        requires,
        unauthenticated,
    )
    from app.core.hooks import API, Command, Host, ModelSection, Page, Parts, Plugin, Ref, View

__all__ = (
    "API",
    "Classification",
    "CollectorRegistry",
    "Command",
    "Endpoint",
    "Engine",
    "Fact",
    "HTTPRouteHandler",
    "Host",
    "Identity",
    "IdentityProvider",
    "ImageClassification",
    "InferenceObserver",
    "InferenceResult",
    "ModelMetadata",
    "ModelSection",
    "ModelSource",
    "Origin",
    "OutputAnnotator",
    "Page",
    "Parts",
    "Plugin",
    "RecordSink",
    "Ref",
    "RequestContext",
    "Servable",
    "ServerSettings",
    "TaskType",
    "View",
    "command_options",
    "requires",
    "unauthenticated",
)

if not TYPE_CHECKING:  # with `__getattr__`, a type checker accepts any name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # A plugin lists itself without the types of the server, whose frameworks take time to import.
        hooks = import_own("app.core.hooks")
        value = getattr(hooks if name in vars(hooks) else import_own("app.core.api"), name)
        globals()[name] = value
        return value
