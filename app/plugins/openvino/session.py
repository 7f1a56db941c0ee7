"""Run ONNX graphs with OpenVINO: the files and layouts of `app.core.runtimes.onnxruntime`, run by another framework.

No other module imports this framework.
"""

import importlib
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from app.core.engine.error_text import needs_extra
from app.core.runtimes.onnxruntime.loading import inspect as inspect_onnx
from app.core.runtimes.onnxruntime.loading import load as load_onnx
from app.core.runtimes.onnxruntime.loading import open_session
from app.core.runtimes.onnxruntime.precision import describe_precision, is_accelerated
from app.core.runtimes.onnxruntime.session import check_memory_of
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.server import ServerSettings
from app.plugins.openvino.settings import OpenVinoOptions, OpenVinoSettings
from metadata.model import Fact, Origin
from tasks.inference.error import model_failed
from tasks.inference.tensor import Datatype

_HINTS = {"fp32": "f32", "bf16": "bf16", "int8": "f32"}
"""Precision of all operators that are not quantised."""
_CPU = "CPU"
_MAX_REASON_LENGTH = 400

_Shapes = tuple[tuple[int, ...], ...]


class OpenVinoSession:
    """A `GraphSession` of OpenVINO. Each thread has its own inference request.

    ONNX Runtime reads the names, shapes and metadata, so that both runtimes accept the same files and answer with the
    same tensors. A graph with dynamic dimensions is compiled twice: for any shape, and, at the first call, for the
    shapes of that call. The first call is the layout's blank image, which has the usual shape. Static shapes are
    faster. Raise ModelError if OpenVINO is not installed, lacks the device or cannot run the graph.
    """

    def __init__(self, source: ModelSource) -> None:
        core = _core(source.of(OpenVinoOptions).compile_cache)
        plain = open_session(source)
        self.copies = 1
        self.file, self.inputs, self.outputs, self.metadata = plain.file, plain.inputs, plain.outputs, plain.metadata
        self.check_memory = partial(check_memory_of, plain.file, plain.external)
        for spec in (*self.inputs, *self.outputs):
            if spec.datatype is Datatype.BYTES:
                raise ModelError(
                    f"{self.file}: the runtime openvino does not support {spec.datatype}, as in {spec.name!r}"
                )
        self._device = _device(core, source)
        self._config, self.facts = _configuration(core, self._device, source, self.file)
        self._compile = core.compile_model
        try:
            model = core.read_model(str(self.file))
            self._any_shape = _CompiledGraph(self._compile(model, self._device, self._config))
        except Exception as error:  # noqa: BLE001  the framework raises RuntimeError and its own subclasses
            raise ModelError(f"{self.file} cannot be loaded by OpenVINO: {_reason(error)}") from None
        self._numbers = {spec.name: number for number, spec in enumerate(self.outputs)}
        self._lock = threading.Lock()
        self._model = model if any(-1 in spec.shape for spec in self.inputs) else None
        self._usual: tuple[_Shapes, _CompiledGraph] | None = None

    def run(self, feeds: Mapping[str, NDArray[Any]], names: Sequence[str] | None = None) -> list[NDArray[Any]]:
        if self._model is not None:
            self._compile_usual(feeds)
        usual = self._usual
        graph = usual[1] if usual is not None and usual[0] == self._shapes(feeds) else self._any_shape
        try:
            return graph.infer(feeds, [self._numbers[name] for name in names or self._numbers])
        except Exception as error:
            raise model_failed(f"The model failed: {_reason(error)}") from error

    def _compile_usual(self, feeds: Mapping[str, NDArray[Any]]) -> None:
        with self._lock:
            # Reshaping would replace fixed dimensions too.
            if self._model is None or not all(spec.accepts(feeds[spec.name].shape) for spec in self.inputs):
                return
            model, self._model = self._model, None
            try:
                model.reshape({name: list(array.shape) for name, array in feeds.items()})
                compiled = self._compile(model, self._device, self._config)
            except Exception:  # noqa: BLE001  the graph needs dynamic shapes
                return
            self._usual = self._shapes(feeds), _CompiledGraph(compiled)

    def _shapes(self, feeds: Mapping[str, NDArray[Any]]) -> _Shapes:
        return tuple(feeds[spec.name].shape for spec in self.inputs)


inspect = partial(inspect_onnx, open_graph=OpenVinoSession)
load = partial(load_onnx, open_graph=OpenVinoSession)


class _CompiledGraph:
    """A compiled graph with one inference request for each thread that calls it."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._of_thread = threading.local()

    def infer(self, feeds: Mapping[str, NDArray[Any]], numbers: Sequence[int]) -> list[NDArray[Any]]:
        request = getattr(self._of_thread, "request", None)
        if request is None:
            request = self._of_thread.request = self._compiled.create_infer_request()
        arrays = {name: array if array.flags.c_contiguous else array.copy() for name, array in feeds.items()}
        # Passing the arrays to `infer` would cost more, for a choice by their types in Python.
        for name, array in arrays.items():
            request.set_tensor(name, _framework().Tensor(array, shared_memory=True))
        request.infer(share_outputs=True)
        # The next call of this thread overwrites the request's memory, while another thread may decode these outputs.
        return [request.get_output_tensor(number).data.copy() for number in numbers]


def _device(core: Any, source: ModelSource) -> str:
    name = source.settings.of(OpenVinoSettings).device
    kind, _, index = name.partition(":")
    device = kind.upper() + (f".{index}" if index else "")
    available = [name.lower().replace(".", ":") for name in core.available_devices]
    if device not in core.available_devices and f"{device}.0" not in core.available_devices:
        raise ModelError(
            f"{source.folder}: openvino.device: OpenVINO finds no {name} on this machine, only {', '.join(available)}"
        )
    return device


def _configuration(
    core: Any, device: str, source: ModelSource, file: Path
) -> tuple[Mapping[str, object], Sequence[Fact]]:
    """Return OpenVINO's properties for a device, and facts about them."""
    settings, precision = source.settings.of(OpenVinoSettings), source.settings.precision
    streams = settings.streams or ServerSettings().worker_count
    # Without this hint OpenVINO chooses bf16 or fp16 where they are faster.
    config: dict[str, object] = {"INFERENCE_PRECISION_HINT": _HINTS[precision], "PERFORMANCE_HINT": "LATENCY"}
    capabilities: Sequence[str] = core.get_property(device, "OPTIMIZATION_CAPABILITIES")
    accelerated = precision.upper() in capabilities and (device != _CPU or is_accelerated(precision))
    facts = [
        Fact("runtime", f"OpenVINO {_framework().__version__.partition('-')[0]} on {device}", Origin.DECLARED),
        describe_precision(source, file, accelerated=accelerated),
    ]
    if device == _CPU:
        threads = streams * settings.threads
        config |= {"NUM_STREAMS": streams, "INFERENCE_NUM_THREADS": threads, "ENABLE_CPU_PINNING": False}
        origin = Origin.MACHINE if settings.streams is None else Origin.DECLARED
        facts.append(Fact("streams", f"{streams}, threads of a call: {settings.threads}", origin))
    return config, facts


@cache
def _core(compile_cache: Path | None) -> Any:
    core = _framework().Core()
    # A mapped file that is truncated while the model serves ends the process with SIGBUS.
    core.set_property({"ENABLE_MMAP": False})
    if compile_cache is not None:
        core.set_property({"CACHE_DIR": str(compile_cache)})
    return core


@cache
def _framework() -> Any:
    # OpenVINO sends telemetry when it is imported, unless this package is missing.
    modules: dict[str, Any] = sys.modules
    modules.setdefault("openvino_telemetry", None)
    with needs_extra("The runtime openvino", "openvino", ModelError):
        return importlib.import_module("openvino")


def _reason(error: Exception) -> str:
    """Return the reason in an exception, without its locations in the framework's source."""
    lines = [line.strip() for line in str(error).splitlines()]
    reasons = [line for line in lines if line and not line.startswith(("Exception from ", "Check '"))]
    return (" ".join(reasons) or type(error).__name__)[:_MAX_REASON_LENGTH]
