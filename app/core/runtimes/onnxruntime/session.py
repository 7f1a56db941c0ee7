"""Run an ONNX graph with ONNX Runtime. No other module imports this framework, which has no type hints."""

import importlib
import os
import platform
import re
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.folder import resolve_within
from app.core.runtimes.onnxruntime.devices import CPU, Device, parse_devices
from app.core.runtimes.onnxruntime.files.external_data import check_external_data
from app.core.runtimes.onnxruntime.files.location import check_graph_file
from app.core.runtimes.onnxruntime.trial import check_memory, free_memory
from app.core.settings.model import ModelError, OnnxRuntimeSettings
from metadata.model import Fact
from tasks.inference.error import model_failed
from tasks.inference.tensor import Datatype, TensorSpec

_ON_CPU = OnnxRuntimeSettings()

_SEVERITY_FATAL = 4
_MAX_REASON_LENGTH = 400
_MAX_READ = 2 * 1024**3
"""Bytes of external data to read into memory; larger data is memory-mapped."""

# The prefix of an error message: "[ONNXRuntimeError]", a number and its name, "Load model from FILE failed", and a
# location in the framework's source, as "file.cc:1 Function" or "file.cc:1 void namespace::Function(arguments)".
_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : (?:Load model from .*? failed:)?")
_SOURCE_LOCATION = re.compile(r"\S+\.(?:cc|h):\d+ (?:[^()\"]*::[^()]*\([^()]*\)|\S+) ")

_PROCESSOR_WARNING = re.compile(rb"cpuid_info warning|Error in cpuinfo")
_IMPORT_LOCK = threading.Lock()

_DATATYPES = {f"tensor({datatype.lower()})": datatype for datatype in Datatype if datatype is not Datatype.BF16} | {
    "tensor(float16)": Datatype.FP16,
    "tensor(float)": Datatype.FP32,
    "tensor(double)": Datatype.FP64,
    "tensor(string)": Datatype.BYTES,
}
"""By ONNX Runtime's names of the types of tensors."""


class GraphSession(Protocol):
    """A graph that several threads may call.

    Attributes:
        file: the ``.onnx`` file.
        inputs: inputs of the graph; -1 is a dimension of any size, as in `outputs`.
        metadata: the file's ``metadata_props``.
        facts: facts about how the graph runs.
        copies: the number of copies of the graph; calls one after the other run on each in turn.
    """

    file: Path
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    metadata: Mapping[str, str]
    facts: Sequence[Fact]
    copies: int

    def run(self, feeds: Mapping[str, NDArray[Any]], names: Sequence[str] | None = None) -> list[NDArray[Any]]:
        """Run the graph, and return the outputs `names`, or all outputs in order.

        Raise MODEL_FAILED with the framework's reason.
        """
        ...

    def check_memory(self, feeds: Mapping[str, NDArray[Any]]) -> None:
        """Raise ModelError if the graph needs more than half of the free main memory for these inputs."""
        ...


class Session:
    """A `GraphSession` of ONNX Runtime. Each call runs on the least busy instance, and of several on the least used.

    External data must be in the folder of `file` or below. `resolve_confined` resolves their links, and rejects paths
    out of the model's folder; the default allows the folder of `file`. Raise ModelError if the file is missing, empty,
    truncated or not an ONNX file, needs features that this ONNX Runtime lacks, or refers to files outside its folder.
    """

    def __init__(
        self,
        file: Path,
        settings: OnnxRuntimeSettings = _ON_CPU,
        resolve_confined: Callable[[Path], Path] | None = None,
    ) -> None:
        check_graph_file(file)
        external = check_external_data(file, resolve_confined or partial(resolve_within, (file.parent.resolve(),)))
        # Import late: servers without ONNX models need neither the time nor the memory of the framework.
        framework = _framework()
        available = framework.get_available_providers()
        self._instances = [
            _load_instance(framework, file, external, parse_devices(name, available), settings.threads)
            for name in settings.devices or (CPU.name,)
            for _ in range(settings.instances)
        ]
        self.copies = len(self._instances)
        self._lock = threading.Lock()
        first_session: Any = self._instances[0].session
        self.file = file
        self.inputs = tuple(_tensor_spec(file, "input", argument) for argument in first_session.get_inputs())
        self.outputs = tuple(_tensor_spec(file, "output", argument) for argument in first_session.get_outputs())
        self.metadata: Mapping[str, str] = dict(first_session.get_modelmeta().custom_metadata_map)
        self.facts: Sequence[Fact] = ()
        self._framework, self.external = framework, external
        self._names = [spec.name for spec in self.outputs]

    def run(self, feeds: Mapping[str, NDArray[Any]], names: Sequence[str] | None = None) -> list[NDArray[Any]]:
        names = names or self._names
        instance = self._instances[0]
        is_shared = self.copies > 1
        if is_shared:
            with self._lock:
                instance = min(self._instances, key=lambda candidate: (candidate.calls, candidate.total_calls))
                instance.calls += 1
                instance.total_calls += 1
        try:
            if instance.memory is not None:
                return run_bound(instance.session, instance.memory, self._framework.OrtValue, feeds, names)
            return instance.session.run(names, feeds)
        except Exception as error:
            raise model_failed(f"The model failed: {_first_line(error)}") from error
        finally:
            if is_shared:
                with self._lock:
                    instance.calls -= 1

    def check_memory(self, feeds: Mapping[str, NDArray[Any]]) -> None:
        if self._instances[0].memory is None:
            check_memory_of(self.file, self.external, feeds)


def check_memory_of(file: Path, external: Mapping[str, Path], feeds: Mapping[str, NDArray[Any]]) -> None:
    """Load a graph with its external data, and run it once. Raise ModelError as `GraphSession.check_memory`."""
    framework = _framework()
    options = _session_options(framework, 1)
    # Keep the data alive until the session has copied it.
    data = _read_external(options, file, external)
    check_memory(framework, options, file, feeds, free_memory() // 2)
    del data


class _SessionInstance(msgspec.Struct):
    """A session of ONNX Runtime, the memory of its `Device`, and its numbers of calls: in flight, and ever."""

    session: Any
    memory: tuple[str, int] | None
    calls: int = 0
    total_calls: int = 0


def _load_instance(
    framework: Any, file: Path, external: Mapping[str, Path], devices: Sequence[Device], threads: int
) -> _SessionInstance:
    """Load the graph on the first device that works: the framework may support a GPU that the machine lacks.

    Raise ModelError if it cannot be loaded on the last device.
    """
    reason = ""
    for device in devices:
        options = _session_options(framework, threads)
        # Keep the data alive until the session has copied it.
        data = _read_external(options, file, external)
        try:
            session = framework.InferenceSession(str(file), options, providers=list(device.providers))
        except Exception as error:  # noqa: BLE001  the framework's exceptions have no common base class
            reason = f": {_first_line(error)}"
            continue
        finally:
            del data
        # If a provider cannot start, the framework only logs this and continues without it.
        first_provider, _ = device.providers[0]
        if first_provider in session.get_providers():
            return _SessionInstance(session, device.memory)
        reason = f" on {device.name!r}: {first_provider} could not be started"
    raise ModelError(f"{file} cannot be loaded{reason}")


def _session_options(framework: Any, threads: int) -> Any:
    options = framework.SessionOptions()
    # Requests are the unit of parallelism: more threads inside a call would compete for the same cores under load.
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = framework.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Signed int8 weights would saturate on x86 processors without VNNI. This only has an effect there.
    options.add_session_config_entry("session.x64quantprecision", "1")
    # Each error is raised, too, and the framework would print it to stderr before our message.
    options.log_severity_level = _SEVERITY_FATAL
    return options


def _read_external(options: Any, file: Path, external: Mapping[str, Path]) -> list[bytes]:
    """Read external data into memory, unless it is too large; ONNX Runtime then maps it.

    A mapped file that is truncated while the model serves, as by a copy over it, ends the process with SIGBUS. Raise
    ModelError if a file cannot be read.
    """
    try:
        if sum(path.stat().st_size for path in external.values()) > _MAX_READ:
            return []
        contents = [path.read_bytes() for path in external.values()]
    except OSError as error:
        raise ModelError(f"{file} refers to external data that cannot be read: {error.strerror}") from None
    if contents:
        sizes = [len(content) for content in contents]
        options.add_external_initializers_from_files_in_memory(list(external), contents, sizes)
    return contents


def run_bound(
    session: Any, memory: tuple[str, int], ort_value: Any, feeds: Mapping[str, NDArray[Any]], names: Sequence[str]
) -> list[NDArray[Any]]:
    """Run a session with IOBinding, which copies inputs and outputs once each, and return the outputs `names`.

    `memory` comes from a `Device`, and `ort_value` is ONNX Runtime's class `OrtValue`.
    """
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, ort_value.ortvalue_from_numpy(np.ascontiguousarray(array), *memory))
    for name in names:
        binding.bind_output(name, "cpu")
    session.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()


def _first_line(error: Exception) -> str:
    """Return the reason in the first line of an ONNX Runtime exception."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    text = _SOURCE_LOCATION.sub("", _PREFIX.sub("", lines[0])).strip()
    return text[:_MAX_REASON_LENGTH]


def _framework() -> Any:
    # Since 1.31 ONNX Runtime sends telemetry. It reads this variable only during import.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    # It knows all processors of x86, where child processes may start with standard error meanwhile.
    with _IMPORT_LOCK, nullcontext() if platform.machine() == "x86_64" else without_processor_warnings():
        return importlib.import_module("onnxruntime")


@contextmanager
def without_processor_warnings() -> Generator[None]:
    """Drop what ONNX Runtime writes to standard error about unknown ARM processors during import, and keep the rest."""
    stderr = os.dup(2)
    with os.fdopen(os.memfd_create("stderr"), "w+b") as held_back:
        os.dup2(held_back.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            held_back.seek(0)
            lines = [line for line in held_back if not _PROCESSOR_WARNING.search(line)]
            os.write(stderr, b"".join(lines))
            os.close(stderr)


def _tensor_spec(file: Path, role: str, argument: Any) -> TensorSpec:
    datatype = _DATATYPES.get(argument.type)
    if datatype is None:
        advice = "; export it from scikit-learn with zipmap=False" if "map(" in argument.type else ""
        advice = "; export it in float16 or float32" if "bfloat16" in argument.type else advice
        raise ModelError(f"{file}: {role} {argument.name!r} is a {argument.type}, which is not supported{advice}")
    shape = tuple(side if isinstance(side, int) else -1 for side in argument.shape)
    return TensorSpec(name=argument.name, datatype=datatype, shape=shape)
