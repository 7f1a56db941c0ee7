"""Everything that a plugin can add. A plugin is the object `plugin` of a package; every hook is a field of `Plugin`.

Built-in plugins are the packages in `app/plugins/`. Others are installed distributions with an entry point of the group
``charioteer.plugins``. They load only if the operator names them (`--plugins`), because their code has all rights of
the server. `app/core/plugins.py` reads these objects once, at start. No request reads them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import Struct

if TYPE_CHECKING:  # listing the plugins must import no framework
    from app.core.api import (
        CollectorRegistry,
        Endpoint,
        Engine,
        GrpcMethods,
        GrpcProtocol,
        GrpcServer,
        HttpAccess,
        HttpListener,
        HttpProtocol,
        HttpRequest,
        IdentityProvider,
        ImportedConfig,
        InferenceObserver,
        Layout,
        Listener,
        ModelMetadata,
        ModelSource,
        OutputAnnotator,
        RecordSink,
        Response,
        RouteHandler,
        Servable,
        ServerSettings,
        TaskAdapter,
        TaskType,
    )

API = 1
"""The version of this file. A plugin for another version is skipped."""

T = TypeVar("T")


class Ref(Struct, Generic[T], frozen=True):
    """``package.module:name``, imported at its first use."""

    target: str

    def load(self) -> T:
        """Import the module, and return the object."""
        module, _, name = self.target.partition(":")
        # In a user's process our packages are `charioteer.app`, `charioteer.metadata` and `charioteer.tasks`.
        own = module.partition(".")[0] in ("app", "metadata", "tasks")
        prefix = __name__.removesuffix("app.core.hooks") if own else ""
        return getattr(importlib.import_module(prefix + module), name)


class Command(Struct, frozen=True, kw_only=True):
    """A command of ``charioteer``: `run` is ``package.module:function``, imported when the command runs."""

    name: str
    help: str
    run: str


class ModelSection(Struct, frozen=True, kw_only=True):
    """Settings of a model, or parameters of an input: the object `name`, or fields beside the others without a name.

    Every field of the type needs a default. `ModelSettings.of` and `InputParameters.of` return the values.
    """

    type: Ref[type[Struct]]
    name: str = ""


class TaskSupport(Struct, frozen=True, kw_only=True):
    """A task type that `TaskType.add` returned, and how a Python class answers it; None if no class can."""

    task_type: TaskType
    adapter: Ref[TaskAdapter] | None = None


class Runtime(Protocol):
    """Loads models. Of the runtimes that recognise a model, the one with the highest `priority` loads it.

    `name` is a value of ``runtime`` in model-settings.json. Runtimes for different models may share one name.
    `precisions` are the values of ``precision`` that it supports.
    """

    @property
    def name(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def precisions(self) -> Sequence[str]: ...

    def recognises(self, source: ModelSource, /) -> bool:
        """Return whether the names of a model's files or its settings match this runtime."""
        ...

    def inspect(self, source: ModelSource, /) -> ModelMetadata:
        """Describe the model without keeping it loaded.

        Raises:
            ModelError: if the model cannot be described.
        """
        ...

    def load(self, source: ModelSource, /) -> Servable:
        """Load the model. Several threads may call the result.

        Raises:
            ModelError: if the model cannot be loaded.
        """
        ...


class ModelLoader(Protocol):
    """Calls `load` or `inspect` for the models that it accepts elsewhere, such as in a process of their own.

    Both are module-level functions and raise `ModelError`, as the methods here may.
    """

    def accepts(self, source: ModelSource, /) -> bool: ...
    def inspect(self, source: ModelSource, inspect: Callable[[ModelSource], ModelMetadata], /) -> ModelMetadata: ...
    def load(self, source: ModelSource, load: Callable[[ModelSource], Servable], /) -> Servable: ...


class ForeignFormat(Struct, frozen=True, kw_only=True):
    """Reads files of another server or framework. `check` and `read` may raise `ModelError`.

    Attributes:
        files: names of its files. A folder with one of them is a model.
        check: rejects a folder whose model-settings.json is for another server.
        read: returns the configuration of the model in a folder; None without one.
        label_file: returns the name of the label file in that configuration; "" without one.
        advice: returns what a file is and how to serve it, after its path in an error; "" for unknown formats.
    """

    files: Sequence[str] = ()
    check: Callable[[Path], None] = lambda _: None
    read: Callable[[Path], ImportedConfig | None] = lambda _: None
    label_file: Callable[[Path], str] = lambda _: ""
    advice: Callable[[Path], str] = lambda _: ""


class Port(Struct, frozen=True, kw_only=True):
    """A protocol with an HTTP port of its own. Pages of `origins` may send requests to it; ``*`` is any origin."""

    protocol: HttpListener
    port: int
    origins: Sequence[str] = ()


class Protocols(Struct, frozen=True, kw_only=True):
    """Wire protocols.

    Attributes:
        http: protocols of the main port.
        ports: protocols with ports of their own.
        grpc: gRPC services.
        grpc_ports: further ports of the gRPC server, by the name in the start message.
    """

    http: Sequence[HttpProtocol] = ()
    ports: Sequence[Port] = ()
    grpc: Sequence[GrpcProtocol] = ()
    grpc_ports: Mapping[str, int] = {}


class Host(Protocol):
    """The server that `Plugin.start` extends, before its first request."""

    @property
    def settings(self) -> ServerSettings:
        """Return the settings; `settings.of` returns those of a plugin."""
        ...

    @property
    def metrics(self) -> CollectorRegistry:
        """Return the registry of the server's Prometheus metrics."""
        ...

    @property
    def engine(self) -> Engine:
        """Return the engine, with the registry of models."""
        ...

    @property
    def access(self) -> HttpAccess:
        """Return the authorization. It is complete once all plugins have started."""
        ...

    @property
    def views(self) -> Mapping[str, Callable[[], object] | None]:
        """Return `Parts.views` of all plugins, once all have started."""
        ...

    @property
    def port_names(self) -> Sequence[str]:
        """Return the names of the protocols with HTTP ports of their own."""
        ...

    def port(self, name: str) -> Listener:
        """Return the port of a protocol, once all plugins have started."""
        ...

    @property
    def grpc(self) -> GrpcServer | None:
        """Return the gRPC server, if it is on, once all plugins have started."""
        ...


class Parts(Struct, frozen=True, kw_only=True):
    """What a plugin adds to one server. Observers and annotators run in workers, the rest in the event loop.

    Attributes:
        observers: receive every inference at once, with its inputs and predictions.
        batched_observers: receive every inference within a fraction of a second, without inputs and predictions.
        annotators: add output parameters to responses.
        record_sink: records every inference before its answer is sent. Only one plugin can have it.
        extensions: names of extensions of the Open Inference Protocol, for the metadata of the server.
        identities: identifies clients by credentials that are no API keys. Only one plugin can have it.
        handlers: routes of the main port.
        operations: their descriptions for OpenAPI.
        home: returns the response to ``/`` for some clients, or None. Only one plugin can have it.
        costly_prefixes: prefixes of paths where GET may return a long or endless response, so that HEAD is refused.
        views: the views of the page that this server has, by id; each with the function that returns its data, or None.
        lifespan: is entered before the first request, and left after the last one.
        on_drain: called when the server stops accepting requests.
        close: called after the last request, with the seconds that it may take.
    """

    observers: Sequence[InferenceObserver] = ()
    batched_observers: Sequence[InferenceObserver] = ()
    annotators: Sequence[OutputAnnotator] = ()
    record_sink: RecordSink | None = None
    extensions: Sequence[str] = ()
    identities: IdentityProvider | None = None
    handlers: Sequence[RouteHandler] = ()
    operations: Sequence[Endpoint] = ()
    home: Callable[[HttpRequest], Response[Any] | None] | None = None
    costly_prefixes: Sequence[str] = ()
    views: Mapping[str, Callable[[], object] | None] = {}
    lifespan: Callable[[], AbstractAsyncContextManager[None]] | None = None
    on_drain: Callable[[], None] | None = None
    close: Callable[[float], None] | None = None


class View(Struct, frozen=True, kw_only=True):
    """A view of the page: the module ``<id>.js`` with the function `open`. Views stand in their `order`.

    It needs its id in `Parts.views`. With `observes`, requests are stored or monitored, so the page sends none itself.
    """

    id: str
    title: str
    order: int
    observes: bool = False


class Page(Struct, frozen=True, kw_only=True):
    """What a plugin adds to the page.

    Attributes:
        folder: its files. The files of all plugins lie in one folder for the browser, so that names exist once.
        views: its views.
        requests: by the id of a protocol, the file whose functions write its requests.
    """

    folder: Path
    views: Sequence[View] = ()
    requests: Mapping[str, str] = {}


class Plugin(Struct, frozen=True, kw_only=True):
    """All hooks.

    Attributes:
        api: the version of this file that the plugin was written for.
        name: the name of its package.
        summary: what it adds, in one sentence.
        requires: names of the plugins that it imports. Without them it is skipped.
        extra: the extra of the distribution that its imports need.
        settings: options of ``serve``, as frozen dataclasses for cyclopts, for `Host.settings.of`.
        model_options: options of every command that loads models, in the same form, for `ModelSource.of`.
        model_settings: settings of one model, in model-settings.json.
        parameters: parameters of the inputs of all tasks but TENSOR.
        commands: commands of ``charioteer``.
        task_types: what models can answer, beside the tasks of core.
        runtimes: load models.
        loaders: load models elsewhere.
        formats: read files of other servers and frameworks.
        layouts: how outputs of ONNX models are recognised and decoded.
        protocols: returns the enabled protocols of a server.
        endpoints: functions whose endpoints are added to protocols of the main port, by the name of the protocol.
        methods: added to gRPC services, by the name of the protocol.
        start: called once for each server; returns what the plugin adds to it.
        extends: what it adds to another plugin, by extension point, such as ``conformance.protocols``. Only that plugin
            imports it.
        public: names that the module `charioteer` offers, each with the module that defines it.
        page: files and views of the page.
    """

    api: int
    name: str
    summary: str
    requires: Sequence[str] = ()
    extra: str = ""
    settings: Sequence[type[Any]] = ()
    model_options: Sequence[type[Any]] = ()
    model_settings: Sequence[ModelSection] = ()
    parameters: Sequence[ModelSection] = ()
    commands: Sequence[Command] = ()
    task_types: Ref[Sequence[TaskSupport]] | None = None
    runtimes: Ref[Sequence[Runtime]] | None = None
    loaders: Ref[Sequence[ModelLoader]] | None = None
    formats: Ref[Sequence[ForeignFormat]] | None = None
    layouts: Ref[Sequence[Layout]] | None = None
    protocols: Ref[Callable[[ServerSettings], Protocols]] | None = None
    endpoints: Mapping[str, Ref[Callable[[Engine], Sequence[Endpoint]]]] = {}
    methods: Mapping[str, Ref[GrpcMethods]] = {}
    start: Ref[Callable[[Host], Parts]] | None = None
    extends: Mapping[str, Ref[Sequence[Any]]] = {}
    public: Mapping[str, str] = {}
    page: Page | None = None
