"""Load a Python model: import its class, construct its instances, and bind them to the task."""

import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from app.core.engine.models.servable import Servable
from app.core.plugins import registry
from app.core.runtimes.closing import close_at_exit
from app.core.runtimes.label_files import declared_labels, format_labels
from app.core.runtimes.python.instances import InstancePool, JobTimeoutError, ModelInstance, describe_exception
from app.core.runtimes.python.model_code import ModelCode
from app.core.runtimes.python.outputs.value_parsing import ClassNames
from app.core.runtimes.python.python_model import PythonModel, StreamingPythonModel
from app.core.runtimes.python.task_adapters import (
    CallForm,
    TaskAdapter,
    call_form,
    explain_arguments,
    find_method,
    task_adapter,
)
from app.core.settings.model import SETTINGS_FILE, ModelError, ModelSettings, ModelSource
from metadata.model import Fact, ModelMetadata, Origin
from tasks.task import TaskType

T = TypeVar("T")

_MAX_LABELS = 1_000_000
_ADVICE = "allow it with --allow-code, or CHARIOTEER_ALLOW_CODE=true, if you trust its author"


def inspect(source: ModelSource) -> ModelMetadata:
    """Describe a model from its settings and its class. Only a function without a task, or of TENSOR, is called.

    Raise ModelError if its code is not allowed or cannot be imported, or its task is unknown.
    """
    implementation = _check_allowed(source)
    code, instance = ModelCode(source.folder), ModelInstance(f"model {source.name}")
    try:
        target = _run(source, instance, "importing it", lambda: code.find(implementation))
        if not isinstance(target, type) and _declared_task(source, target) in (None, TaskType.TENSOR):
            target = _construct(source, instance, target)
        return _description(source, target, *_signatures(source, target))
    finally:
        instance.stop(_close)
        code.unload()


def load(source: ModelSource) -> Servable:
    """Construct the instances of a model's class and call their `load`.

    The instances are closed after the servable is dropped and its last request has finished, or when the server ends.
    Raise ModelError if its code is not allowed, raises or times out, or the class does not fit its task.
    """
    implementation = _check_allowed(source)
    code = ModelCode(source.folder)
    instances = [ModelInstance(f"model {source.name} {number}") for number in range(source.settings.instances)]
    pool = InstancePool(instances, source.settings.timeout_seconds, _close)
    try:
        model_class = _run(source, instances[0], "importing it", lambda: code.find(implementation))
        for instance in instances:
            instance.target = _construct(source, instance, model_class)
            hook = getattr(instance.target, "load", None)
            if callable(hook):
                _run(source, instance, "load()", hook)
        servable = _bind(source, instances[0].target, pool, code)
    except BaseException:
        pool.close()
        code.unload()
        raise
    close_at_exit(pool)
    return servable


def _check_allowed(source: ModelSource) -> str:
    if source.settings.implementation is None:
        raise _error(source, 'a Python model must name its class, as in "implementation": "model:Detector"')
    if not source.allow_code:
        raise ModelError(f"{source.file or source.folder} contains Python code, which is not allowed here; {_ADVICE}")
    return source.settings.implementation


def _construct(source: ModelSource, instance: ModelInstance, factory: object) -> Any:
    if not callable(factory):
        raise _error(source, f"{source.settings.implementation} is neither a class nor a function that returns a model")
    arguments = source.settings.arguments
    target = _run(source, instance, "constructing it", lambda: factory(**arguments))
    for library in registry().python_libraries:
        target = library.model(target)
    if not callable(getattr(target, "predict", None)):
        raise _error(source, f"{type(target).__name__} has no predict()")
    return target


def _bind(source: ModelSource, target: Any, pool: InstancePool, code: ModelCode) -> Servable:
    adapter, form, explain_names = _signatures(source, target)
    labels, converters = ClassNames(_labels(source, target)), [one.answer for one in registry().python_libraries]
    model_class = StreamingPythonModel if form is not None and form.streams else PythonModel
    model = model_class(pool, cast("CallForm", form), adapter, labels, explain_names, converters)
    # The registration and the requests in flight keep the model alive.
    weakref.finalize(model, pool.close).atexit = False
    weakref.finalize(model, code.unload).atexit = False
    description = _description(source, target, adapter, form, explain_names)
    return Servable(adapter.task, model, description, source.settings.parameters)


def _declared_task(source: ModelSource, target: object) -> object:
    return source.settings.task_type or getattr(target, "task_type", None)


def _signatures(source: ModelSource, target: object) -> tuple[TaskAdapter, CallForm | None, Sequence[str] | None]:
    """Return the adapter for an object or its class, and how ``predict`` and ``explain`` are called; None without."""
    predict, explain = find_method(target, "predict"), find_method(target, "explain")
    try:
        adapter = task_adapter(_declared_task(source, target), target)
        form = call_form(predict, adapter) if callable(predict) else None
        return adapter, form, explain_arguments(explain, adapter) if callable(explain) else None
    except ModelError as error:
        raise _error(source, str(error)) from None


def _labels(source: ModelSource, target: object) -> Sequence[str]:
    """Return the class names from the settings, or else from the object: a list, or a dict by class number."""
    own: object = getattr(target, "labels", None)
    declared: object = declared_labels(source) or (() if own is None else own)
    if isinstance(declared, Mapping):
        by_number = cast("Mapping[Any, object]", declared)
        with suppress(TypeError):  # keys that are not numbers
            count = max(by_number, default=-1) + 1
            if count > _MAX_LABELS:
                raise _error(source, f"labels: Expected numbers of classes below {_MAX_LABELS}, got {count - 1}")
            declared = [by_number.get(number, str(number)) for number in range(count)]
    if not isinstance(declared, (list, tuple)) or not all(
        isinstance(label, str) for label in cast("list[object]", declared)
    ):
        raise _error(source, "labels: Expected a list of class names, or a dict of them by number")
    return cast("Sequence[str]", declared)


def _description(
    source: ModelSource, target: object, adapter: TaskAdapter, form: CallForm | None, explain: Sequence[str] | None
) -> ModelMetadata:
    settings, task = source.settings, adapter.task
    # A class has no value of a property or another descriptor.
    unknown = settings.labels is None and hasattr(getattr(target, "labels", None), "__get__")
    labels = () if unknown else _labels(source, target)
    task_origin = Origin.DECLARED if settings.task_type else Origin.CLASS
    called_as = "an object of another library" if isinstance(target, type) else "the model that the function makes"
    facts = [
        Fact("task type", str(task.task_type), task_origin),
        Fact("class", str(settings.implementation), Origin.DECLARED),
        Fact("is called as", str(form) if form else called_as, Origin.CLASS),
    ]
    if explain is not None:
        facts.append(Fact("explains itself", f"explain({', '.join(explain)})", Origin.CLASS))
    if settings.timeout_seconds != ModelSettings().timeout_seconds:
        facts.append(Fact("a call may take", f"{settings.timeout_seconds:g} s", Origin.DECLARED))
    if labels:
        facts.append(Fact("labels", format_labels(labels), Origin.DECLARED if settings.labels else Origin.CLASS))
    tensors = task.task_type is TaskType.TENSOR
    return ModelMetadata(
        task_type=task.task_type,
        platform="python",
        layout="class",
        labels=labels,
        inputs=task.inputs if tensors else (),
        outputs=task.outputs if tensors else (),
        facts=facts,
    )


def _run(source: ModelSource, instance: ModelInstance, step: str, job: Callable[[], T]) -> T:
    """Run one step of loading. Its error names the line of model code that failed."""
    seconds = source.settings.load_timeout_seconds
    try:
        return instance.run(job, seconds)
    except ModelError as error:
        raise _error(source, str(error)) from None
    except JobTimeoutError:
        raise _error(source, f"{step} did not end within {seconds:g} s") from None
    except Exception as error:
        folder, line = str(source.folder.resolve()), ""
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename.startswith(folder):
                line = f" ({frame.filename.removeprefix(folder).lstrip('/')}, line {frame.lineno})"
        raise _error(source, f"{step} failed: {describe_exception(error)}{line}") from error


def _error(source: ModelSource, message: str) -> ModelError:
    return ModelError(f"{source.folder / SETTINGS_FILE}: {message}")


def _close(target: Any) -> object:
    hook = getattr(target, "close", None)
    return hook() if callable(hook) else None
