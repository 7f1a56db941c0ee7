"""Create an application with any mix of stand-ins, echo models and tensor fixtures."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
from litestar import Litestar
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry

from app.core.assembly.models import load
from app.core.engine.engine import Engine
from app.core.engine.models.servable import Servable
from app.core.hooks import Parts
from app.core.observers.metrics import Metrics
from app.core.plugins import registry
from app.core.server.auth.http_access import HttpAccess
from app.core.server.http.asgi import Entry, create_app, create_listener_app
from app.core.settings.model import ModelSettings, ModelSource, read_settings
from app.core.settings.server import DEMO_MODELS, ServerSettings
from app.plugins.page.openapi.routes import describing
from app.plugins.page.page import page_parts
from metadata.model import ModelMetadata
from tasks.inference.limits import Limits
from tasks.inference.tensor import Datatype, Tensor, TensorSpec
from tasks.task import TaskType
from tasks.tensor_inference import TensorInference, Tensors, TensorsInput
from tests.support.models.engines import engine_of
from tests.support.models.fake_models import FAKE_MODELS, load_fake_model
from tests.support.protocols import LISTENERS, attach_plugins, main_port_protocols

MAX_REQUEST_BYTES = 2_000_000
LIMITS = Limits(max_inputs=64, max_request_bytes=MAX_REQUEST_BYTES)

TENSOR_FIXTURES = ("greeter", "half_plus_three", "half_plus_two", "ranker")

ECHO_MODELS: dict[str, Sequence[TensorSpec]] = {
    **{f"echo-{datatype.lower()}": [TensorSpec(name="x", datatype=datatype, shape=(-1, -1))] for datatype in Datatype},
    "echo-fixed": [TensorSpec(name="x", datatype=Datatype.INT16, shape=(-1, 2, 3))],
    "echo-encoded": [TensorSpec(name="x_bytes", datatype=Datatype.BYTES, shape=(-1,))],
    "echo-scalar": [TensorSpec(name="x", datatype=Datatype.FP32, shape=())],
    "echo-deep": [TensorSpec(name="x", datatype=Datatype.INT8, shape=(-1,) * 70)],
    "echo-pair": [
        TensorSpec(name="numbers", datatype=Datatype.INT64, shape=(-1,)),
        TensorSpec(name="words", datatype=Datatype.BYTES, shape=(-1,)),
    ],
    "echo-scores": [
        TensorSpec(name=name, datatype=Datatype.INT64, shape=(-1,)) for name in ("scores", "labels", "class_ids")
    ],
}
"""Models that return their input tensors."""

PYTHON_MODELS = Path(__file__).parents[1] / "python_models"
"""Python models, each in a folder with its name."""

ALL_MODELS = (*FAKE_MODELS, *ECHO_MODELS, *TENSOR_FIXTURES)

LoadModel = Callable[[ModelSource], Servable]


def app_with_models(names: Sequence[str], protocol: str = "chariot-v2-kserve") -> Litestar:
    """Return the application with the models `names`, over V2 and one of Chariot's protocols."""
    return app_with_sources([model_source(name) for name in names], load_test_model, protocol)


def app_with_sources(
    sources: Sequence[ModelSource],
    load: LoadModel,
    protocol: str = "chariot-v2-kserve",
    *,
    discover: Callable[[], Sequence[ModelSource]] | None = None,
) -> Litestar:
    """Return the application with `sources`, loaded by `load`; later loads call `discover` again."""
    engine = engine_of(sources, load, discover=discover, limits=LIMITS)
    return app_of_protocol(attach_plugins(engine), protocol)


def app_of_protocol(engine: Engine, protocol: str, max_bytes: int = MAX_REQUEST_BYTES) -> Litestar:
    """Return the application of the port that serves `protocol`, where the main one counts inferences."""
    for listener in LISTENERS:
        if listener.name == protocol:
            return create_listener_app(engine, listener, max_bytes)
    protocols = main_port_protocols(protocol)
    if protocol == "label-studio":  # off by default
        protocols = registry().protocols(registry().settings(label_studio=True)).http
    metrics = CollectorRegistry()
    engine.attach(Parts(observers=(Metrics(metrics, engine.registry.owner),)))
    described = describing(engine)
    return create_app(
        engine, protocols, metrics, max_bytes, handlers=described.handlers, operations=described.operations
    )


def app_with_parts(
    engine: Engine,
    *parts: Parts,
    protocol: str = "chariot-v2-kserve",
    metrics: CollectorRegistry | None = None,
    max_bytes: int = 2_000_000,
    access: HttpAccess | None = None,
    entry: Entry | None = None,
) -> Litestar:
    parts = (*parts, describing(engine))

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            for part in parts:
                if part.lifespan is not None:
                    await stack.enter_async_context(part.lifespan())
            yield

    return create_app(
        engine,
        main_port_protocols(protocol),
        metrics or CollectorRegistry(),
        max_bytes,
        lifespan,
        next((part.home for part in parts if part.home is not None), None),
        access,
        entry,
        [handler for part in parts for handler in part.handlers],
        [operation for part in parts for operation in part.operations],
        [prefix for part in parts for prefix in part.costly_prefixes],
    )


def page_of(
    engine: Engine,
    *,
    guide: Path | None = None,
    chariot_protocol: Literal["chariot-v2", "chariot-v2-kserve"] = "chariot-v2-kserve",
    access: HttpAccess | None = None,
    views: Mapping[str, Callable[[], object] | None] | None = None,
) -> Parts:
    """Return the routes of the web page in a server without other ports."""
    host: Any = SimpleNamespace(
        engine=engine, access=access or HttpAccess(None), views=views or {}, metrics=CollectorRegistry(),
        settings=ServerSettings(chariot_protocol=chariot_protocol), port_names=(), grpc=None,
    )  # fmt: skip
    return page_parts(host, guide)


def load_test_model(source: ModelSource) -> Servable:
    if source.name in FAKE_MODELS:
        return load_fake_model(source)
    if source.name in ECHO_MODELS:
        return echo_model(ECHO_MODELS[source.name])
    return load(source)


def echo_model(specs: Sequence[TensorSpec]) -> Servable:
    """Return a model that returns its input tensors."""
    description = ModelMetadata(
        task_type=TaskType.TENSOR, platform="echo", layout="none", labels=(), inputs=(), outputs=(), facts=()
    )
    return Servable(TensorInference(specs, specs), _return_inputs(specs), description, {})


def _return_inputs(specs: Sequence[TensorSpec]) -> Callable[[Sequence[TensorsInput]], Sequence[Tensors]]:
    def echo(sample: TensorsInput) -> Tensors:
        data = {spec: _encode_text(sample.tensors[spec.name]) for spec in specs}
        return Tensors([Tensor(name=spec.name, datatype=spec.datatype, data=array) for spec, array in data.items()])

    return lambda inputs: list(map(echo, inputs))


def _encode_text(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype != object:
        return array
    data = np.empty(array.size, object)
    data[:] = [text.encode() for text in array.ravel().tolist()]
    return data.reshape(array.shape)


def model_source(name: str) -> ModelSource:
    if name in FAKE_MODELS:
        return ModelSource(
            name=name, version="1", folder=Path(name), settings=ModelSettings(task_type=FAKE_MODELS[name][0])
        )
    folder = PYTHON_MODELS / name
    if folder.is_dir():
        return ModelSource(name=name, version="1", folder=folder, settings=read_settings(folder), allow_code=True)
    return ModelSource(name=name, version="1", folder=DEMO_MODELS / name)
