"""The ML backend of Label Studio at ``/label-studio/<model>``."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Response

from app.core.engine.engine import Engine
from app.core.engine.models.registry import Registration
from app.core.engine.request_context import RequestContext
from app.core.engine.scheduling.admission import TIMEOUT_HEADER
from app.core.protocols.http_inference import read_body
from app.core.protocols.protocol import (
    INFER_FAILURES,
    Endpoint,
    HttpProtocol,
    HttpRequest,
    json_response,
    probe_endpoint,
)
from app.core.protocols.request_info import CLIENT, address_of, new_context
from app.core.wire.bytes_elements import BinaryElement
from app.core.wire.json_body import read_json
from app.plugins.evaluation.truths.label_studio import name_of_image, path_of_image
from app.plugins.labeling.images import ImageReader
from app.plugins.labeling.plan import Plan, make_plan, with_labels_of_model
from app.plugins.labeling.regions import task_result
from app.plugins.recording.api import StoredTruths
from metadata.request import METADATA_PARAMETER
from tasks.inference.error import ErrorKind, InferenceError, invalid
from tasks.inference.limits import too_large
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse
from tasks.inference.tensor import BytesTensor
from tasks.vision.header import image_size
from tasks.vision.request import IMAGE_INPUT

if TYPE_CHECKING:
    from app.plugins.evaluation.truths.matching import LabelOutcome
    from app.plugins.recording.truth_store import TruthStore

_logger = logging.getLogger(__name__)

_PARALLEL_TASKS = 4
_PREDICT_SECONDS = 100.0
"""The time that Label Studio waits for predictions."""
_TASK_ERRORS = frozenset(
    {ErrorKind.INVALID_REQUEST, ErrorKind.UNSUPPORTED, ErrorKind.TOO_LARGE, ErrorKind.MODEL_FAILED}
)
"""Errors of one task. Others, such as an overloaded server, fail the whole request, which Label Studio repeats."""

_ANNOTATED = frozenset({"ANNOTATION_CREATED", "ANNOTATION_UPDATED"})
_EVENTS = _ANNOTATED | {"ANNOTATIONS_DELETED", "START_TRAINING"}


class WireSetup(msgspec.Struct, frozen=True):
    """A project: its labelling configuration. The server and the key that it names are ignored."""

    schema: str = ""
    extra_params: Any = None


class WireTask(msgspec.Struct, frozen=True):
    """A task: its data has the image."""

    id: int | str | None = None
    data: dict[str, Any] = {}


class WirePredict(msgspec.Struct, frozen=True):
    """Tasks to predict. The passwords and the context of interactive tools are ignored."""

    tasks: list[WireTask]
    label_config: str = ""
    project: str | int | None = None


class WireProject(msgspec.Struct, frozen=True):
    """The project of an event."""

    label_config: str = ""


class WireEvent(msgspec.Struct, frozen=True):
    """An event of a project. An annotation's event has the task."""

    action: str = ""
    project: WireProject = WireProject()
    task: dict[str, Any] = {}
    annotation: dict[str, Any] = {}


class LabelStudio(HttpProtocol):
    """Predictions for tasks of Label Studio.

    Args:
        images: reads the images of tasks.
    """

    name = "label-studio"
    prefixes = ("/label-studio",)

    def __init__(self, images: ImageReader) -> None:
        self._images = images

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        path, ready = "/label-studio/{target:str}", "Whether a model is ready to label"
        post = partial(Endpoint, method="POST", permission="infer", failures=INFER_FAILURES)
        health = partial(probe_endpoint, handle=partial(_health, engine), failures=(404, 503))
        predict = partial(self._predict, engine)
        return [
            health(path, ready),
            health(f"{path}/health", ready),
            post(f"{path}/setup", "Check that a model can label", handle=partial(_setup, engine), body=WireSetup),
            post(f"{path}/predict", "Label tasks", handle=predict, body=WirePredict),
            post(
                f"{path}/webhook",
                "Receive an event",
                handle=partial(_webhook, engine),
                body=WireEvent,
                permission="label",
            ),
        ]

    async def _predict(self, engine: Engine, request: HttpRequest) -> Response[bytes]:
        body, registration = await read_body(request, engine), _find(engine, request)

        def read() -> tuple[WirePredict, Plan]:
            wire = read_json(body, WirePredict, limits=engine.limits)
            if len(wire.tasks) > engine.limits.max_inputs:
                raise too_large(engine.limits.max_inputs, "tasks in one body (--max-inputs)", len(wire.tasks), "tasks")
            return wire, make_plan(registration, wire.label_config, "label_config")

        wire, plan = await asyncio.to_thread(read)
        headers, address = request.headers, address_of(request.scope)
        parallel = asyncio.Semaphore(_PARALLEL_TASKS)

        async def predict(task: WireTask) -> Mapping[str, object]:
            context = new_context(headers, self.name, address)
            context.client = CLIENT.get()
            async with parallel:
                return await self._predict_task(engine, context, plan, wire, task)

        try:
            async with asyncio.timeout(_PREDICT_SECONDS):
                results = await asyncio.gather(*map(predict, wire.tasks), return_exceptions=True)
        except TimeoutError:
            message = f"The tasks took more than {_PREDICT_SECONDS:g} s, which Label Studio waits; send fewer at once"
            raise InferenceError(ErrorKind.DEADLINE_EXCEEDED, message, "tasks") from None
        failures: list[InferenceError] = []
        for index, result in enumerate(results):
            if isinstance(result, BaseException):
                if not isinstance(result, InferenceError) or result.kind not in _TASK_ERRORS:
                    raise result
                # A header is about all tasks.
                path = ".".join((f"tasks[{index}].data", *plan.keys)) if result.path != TIMEOUT_HEADER else result.path
                failures.append(InferenceError(result.kind, result.message, path))
                _logger.warning("a labelling task for %s failed: %s", plan.model_name, failures[-1])
        if failures and len(failures) == len(results):
            raise InferenceError(failures[0].kind, f"Every task failed. {failures[0]}")
        # A failed task gets an empty prediction: any other number of results makes Label Studio drop all.
        failed: Mapping[str, object] = {"result": [], "score": 0.0, "model_version": plan.version}
        answers = [failed if isinstance(result, BaseException) else result for result in results]
        return json_response(msgspec.json.encode({"results": answers}))

    async def _predict_task(
        self, engine: Engine, context: RequestContext, plan: Plan, wire: WirePredict, task: WireTask
    ) -> Mapping[str, object]:
        limits = engine.limits
        value = _image_of(task, plan)
        data = await self._images.read(value, task.id, limits)

        def decode() -> InferenceRequest:
            known = {
                "label_studio_task": task.id,
                "label_studio_project": wire.project,
                "file_name": name_of_image(path_of_image(value)),
            }
            entries = [{"key": key, "type": "str", "value": str(found)} for key, found in known.items() if found]
            parameters = {**plan.parameters, METADATA_PARAMETER: entries}
            elements = [BinaryElement(data)]
            image = BytesTensor(name=IMAGE_INPUT.name, shape=(1,), elements=elements, parameters=parameters)
            return InferenceRequest(id=context.request_id, model_name=plan.model_name, inputs=(image,))

        def encode(response: InferenceResponse) -> Mapping[str, object]:
            size = image_size(data, allow_avif_jpeg2000=limits.allow_avif_jpeg2000)
            return task_result(plan, response.predictions[0].records(), *size)

        return await engine.handle(context, plan.model_name, decode, encode)


def _find(engine: Engine, request: HttpRequest) -> Registration:
    return engine.registry.find(engine.registry.name_for_path(request.path_params["target"]))


def _health(engine: Engine, request: HttpRequest) -> Mapping[str, str]:
    task_type = _find(engine, request).ready_servable().description.task_type
    return {"status": "UP", "model_class": str(task_type)}


async def _setup(engine: Engine, request: HttpRequest) -> Mapping[str, str]:
    body, registration = await read_body(request, engine), _find(engine, request)

    def read() -> Mapping[str, str]:
        wire = read_json(body, WireSetup, limits=engine.limits)
        if wire.extra_params not in (None, "", "{}", {}):
            message = 'Expected none: write parameters into the configuration, such as model_score_threshold="0.3"'
            raise invalid(message, "extra_params")
        return {"model_version": make_plan(registration, wire.schema, "schema").version}

    try:
        return await asyncio.to_thread(read)
    except InferenceError as error:
        # Label Studio shows only the status, and refers to this log.
        _logger.warning("Label Studio cannot connect %s: %s", registration.source.name, error)
        raise


async def _webhook(engine: Engine, request: HttpRequest) -> Response[bytes]:
    event = read_json(await read_body(request, engine), WireEvent, limits=engine.limits)
    registration = _find(engine, request)
    if event.action not in _EVENTS:
        return json_response(msgspec.json.encode({"status": "Unknown event"}))
    result: object = {}
    truths = next(iter(engine.provided.find(StoredTruths)), None)
    if truths is not None and event.action in _ANNOTATED:
        plan = await asyncio.to_thread(make_plan, registration, event.project.label_config, "project.label_config")
        task = {**event.task, "annotations": [with_labels_of_model(plan, event.annotation)]}
        known = {name for _, names in plan.controls for name in names}
        is_complete = known >= {*registration.ready_servable().description.labels}
        result = await truths.run(lambda store: _store_task(store, task, complete=is_complete)) or result
    return json_response(msgspec.json.encode({"result": result, "status": "ok"}), 201)


def _store_task(truths: "TruthStore", task: Mapping[str, object], *, complete: bool) -> "LabelOutcome | None":
    """Store the annotation of a task as the truth of all inferences of its image; None without one."""
    # Import late: servers without truths start faster.
    from app.plugins.evaluation.dataset import EvaluationError
    from app.plugins.evaluation.truths.importing import read_task
    from app.plugins.evaluation.truths.matching import LabelOutcome, add_labels

    try:
        outcome = next(iter(add_labels(truths, read_task(task, complete=complete))), None)
    except EvaluationError as error:
        outcome = LabelOutcome(result="invalid", error=str(error))
    if outcome is not None and outcome.result != "matched":
        # Label Studio does not show answers to its events.
        _logger.warning("an annotation of Label Studio is no truth: %s %s", outcome.result, outcome.error)
    return outcome


def _image_of(task: WireTask, plan: Plan) -> str:
    """Return what the data of a task has as its image. Reject other values than texts."""
    value: Any = task.data
    for key in plan.keys:
        try:
            value = value[int(key) if isinstance(value, list) else key]
        except (LookupError, TypeError, ValueError):
            value = None
    if not isinstance(value, str):
        raise invalid("Expected a text that names an image", ".".join(("data", *plan.keys)))
    return value
