"""Everything that a plugin can add. A plugin is the object `plugin` of a package; every hook is a field of `Plugin`.

Built-in plugins are the packages in `app/plugins/`. Others are installed distributions with an entry point of the group
``charioteer.plugins``. They load only if the operator names them (`--plugins`), because their code has all rights of
the server. `app.core.plugins` reads these objects once, at start. No request reads them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from msgspec import Struct

if TYPE_CHECKING:  # listing the plugins must import no framework
    from app.core import api

API = 2
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
    """A command of ``charioteer``: a function or an `App` of cyclopts, imported when it runs. `group` is a heading."""

    name: str
    help: str
    run: Ref[Callable[..., object]]
    group: Literal["Serve", "Model", "Answers", "Others"] = "Others"


class TaskSupport(Struct, frozen=True, kw_only=True):
    """A task type that `TaskType.add` returned, and how a Python class answers it; None if no class can."""

    task_type: api.TaskType
    adapter: Ref[api.TaskAdapter] | None = None


class Runtime(Protocol):
    """Loads models, or raises `ModelError`. Of those that recognise a model, the highest `priority` loads it.

    `name` is a value of ``runtime`` in model-settings.json. Runtimes for different models may share one name.
    `precisions` are the values of ``precision`` that it supports.
    """

    @property
    def name(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def precisions(self) -> Sequence[str]: ...

    def recognises(self, source: api.ModelSource, /) -> bool:
        """Return whether the names of a model's files or its settings match this runtime."""
        ...

    def inspect(self, source: api.ModelSource, /) -> api.ModelMetadata:
        """Describe the model without keeping it loaded."""
        ...

    def load(self, source: api.ModelSource, /) -> api.Servable:
        """Load the model. Several threads may call the result."""
        ...


class ModelLoader(Protocol):
    """Wraps the inspection and the loading of models: it changes the result, or calls them `elsewhere`.

    Both may raise `ModelError`.
    """

    elsewhere: bool

    def accepts(self, source: api.ModelSource, /) -> bool: ...
    def inspect(self, source: api.ModelSource, inspect: Callable[..., api.ModelMetadata], /) -> api.ModelMetadata: ...
    def load(self, source: api.ModelSource, load: Callable[..., api.Servable], /) -> api.Servable: ...


class ForeignFormat(Struct, frozen=True, kw_only=True):
    """Reads files of another server or framework. A folder with one of `files` is a model."""

    files: Sequence[str] = ()
    # Raises `ModelError` for a folder whose model-settings.json is for another server.
    check: Callable[[Path], None] = lambda _: None
    # Returns the configuration of the model in a folder, None without one; may raise `ModelError`.
    read: Callable[[Path], api.ImportedConfig | None] = lambda _: None
    # Returns the name of the label file in that configuration; "" without one.
    label_file: Callable[[Path], str] = lambda _: ""
    # Returns what a file is and how to serve it, after its path in an error; "" for unknown formats.
    advice: Callable[[Path], str] = lambda _: ""


class Port(Struct, frozen=True, kw_only=True):
    """A protocol with an HTTP port of its own. Pages of `origins` may send requests to it; ``*`` is any origin."""

    protocol: api.HttpListener
    port: int
    origins: Sequence[str] = ()


class Protocols(Struct, frozen=True, kw_only=True):
    """Protocols of the main port, of ports of their own, and of gRPC; and further gRPC ports, by displayed name."""

    http: Sequence[api.HttpProtocol] = ()
    ports: Sequence[Port] = ()
    grpc: Sequence[api.GrpcProtocol] = ()
    grpc_ports: Mapping[str, int] = {}


class Host(Protocol):
    """The server that `Plugin.start` extends, before its first request.

    `settings.of` returns the options of a plugin, `engine` has the registry of models, and `port_names` are the
    protocols with HTTP ports of their own. `access`, `views` (`Parts.views` of all plugins), `port` and `grpc` (None if
    it is off) are complete once all plugins have started.
    """

    @property
    def settings(self) -> api.ServerSettings: ...
    @property
    def metrics(self) -> api.CollectorRegistry: ...
    @property
    def engine(self) -> api.Engine: ...
    @property
    def access(self) -> api.HttpAccess: ...
    @property
    def views(self) -> Mapping[str, Callable[[], object] | None]: ...
    @property
    def port_names(self) -> Sequence[str]: ...
    def port(self, name: str) -> api.Listener: ...
    @property
    def grpc(self) -> api.GrpcServer | None: ...
    def provide(self, kind: type[T], value: T) -> None:
        """Give a value to the other plugins of the server, in `start`. The type is in the `api.py` of a plugin."""
        ...

    def find(self, kind: type[T]) -> Sequence[T]:
        """Return what plugins provide, in `lifespan` and handlers; `engine.provided` is the same for endpoints."""
        ...


class Parts(Struct, frozen=True, kw_only=True):
    """What a plugin adds to one server. Observers and annotators run in workers, the rest in the event loop."""

    # Receive every inference at once, with its inputs and predictions.
    observers: Sequence[api.InferenceObserver] = ()
    # Receive every inference within a fraction of a second, without inputs and predictions.
    batched_observers: Sequence[api.InferenceObserver] = ()
    annotators: Sequence[api.OutputAnnotator] = ()  # add output parameters to responses
    record_sink: api.RecordSink | None = None  # records every inference before its answer; of one plugin only
    extensions: Sequence[str] = ()  # of the Open Inference Protocol, for the metadata of the server
    identities: api.IdentityProvider | None = None  # of clients without API keys; of one plugin only
    handlers: Sequence[api.RouteHandler] = ()  # routes of the main port
    operations: Sequence[api.Endpoint] = ()  # their descriptions for OpenAPI
    # Returns the response to ``/`` for browsers; of several plugins, the last one by name decides.
    home: Callable[[api.HttpRequest], api.Response[Any]] | None = None
    costly_prefixes: Sequence[str] = ()  # of paths where GET may be long or endless, so that HEAD is rejected
    # The views of the page that this server has, by id; each with the function that returns its data, or None.
    views: Mapping[str, Callable[[], object] | None] = {}
    # Entered before the first request, and left after the last one.
    lifespan: Callable[[], AbstractAsyncContextManager[None]] | None = None
    close: Callable[[float], None] | None = None  # called after the last request, with the seconds that it may take


class View(Struct, frozen=True, kw_only=True):
    """A view of the page, or a section `within` a view: the module ``<id>.js``. It needs its id in `Parts.views`."""

    id: str
    title: str
    order: int  # of the views, and of the sections of a view
    observes: bool = False  # requests are stored, so the page sends none itself
    within: str = ""  # the id of the view; it is shown with its first section


class Page(Struct, frozen=True, kw_only=True):
    """Files and views of the page. The files of all plugins lie in one folder for the browser, so names exist once."""

    folder: Path = Path("static")  # a relative one is in the package of the plugin
    views: Sequence[View] = ()
    parts: Mapping[str, str] = {}  # by the id of a view, the file whose function `extend` adds elements to it
    requests: Mapping[str, str] = {}  # by the id of a protocol, the file whose functions write its requests


class Plugin(Struct, frozen=True, kw_only=True):
    """All hooks."""

    api: int  # the version of this file that the plugin was written for
    name: str = ""  # by default the name of its package or entry point
    summary: str = ""  # what it adds, in one sentence; by default the docstring of its package
    requires: Sequence[str] = ()  # names of the plugins that it imports; it is skipped without them
    extra: str = ""  # of the distribution, which its imports need
    settings: Sequence[type[Any]] = ()  # options of `serve`, as frozen dataclasses for cyclopts, for `Host.settings.of`
    model_options: Sequence[type[Any]] = ()  # the same of every command that loads models, for `ModelSource.of`
    # Settings of one model, for `ModelSettings.of`, by the name of their object in model-settings.json; "" for fields
    # of the top level. Every field needs a default.
    model_settings: Mapping[str, Ref[type[Struct]]] = {}
    # Parameters of the inputs of all tasks but TENSOR, for `InputParameters.of`. Every field needs a default.
    parameters: Sequence[Ref[type[Struct]]] = ()
    commands: Sequence[Command] = ()
    task_types: Ref[Sequence[TaskSupport]] | None = None  # what models can answer, beside the tasks of core
    runtimes: Ref[Sequence[Runtime]] | None = None
    loaders: Ref[Sequence[ModelLoader]] | None = None
    formats: Ref[Sequence[ForeignFormat]] | None = None
    layouts: Ref[Sequence[api.Layout]] | None = None  # recognise and decode outputs of ONNX models
    graph_files: Ref[Sequence[api.GraphFileReader]] | None = None  # read files of a library beside ONNX graphs
    python_libraries: Ref[Sequence[api.PythonLibrary]] | None = None  # objects of a library in Python models
    protocols: Ref[Callable[[api.ServerSettings], Protocols]] | None = None
    # Endpoints added to a protocol of the main port, and methods added to a gRPC service, by the protocol's name.
    endpoints: Mapping[str, Ref[Callable[[api.Engine], Sequence[api.Endpoint]]]] = {}
    methods: Mapping[str, Ref[api.GrpcMethods]] = {}
    start: Ref[Callable[[Host], Parts | None]] | None = None  # called once for each server
    public: Mapping[str, Ref[object]] = {}  # names that the module `charioteer` offers
    page: Page | None = None
