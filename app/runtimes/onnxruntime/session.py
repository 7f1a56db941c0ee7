"""An ONNX graph held by ONNX Runtime. The only module that touches the framework, which has no types."""

import ctypes
import importlib
import math
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.runtimes.folder import confined_to
from app.runtimes.onnxruntime.binding import run_bound
from app.runtimes.onnxruntime.devices import CPU, Device, devices_called
from app.runtimes.onnxruntime.external_data import check_external_data
from app.settings.model import ModelError, OnnxRuntimeSettings
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.tensor import Datatype, TensorSpec

__all__ = ("Session",)

_ON_CPU = OnnxRuntimeSettings()

_BFLOAT16 = "tensor(bfloat16)"
_BFLOAT16_NUMBER = 16
"""ONNX's TensorProto.DataType.BFLOAT16."""

_LFS_POINTER = b"version https://git-lfs"
_PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""How files of ``torch.save`` begin, which are zipped or bare pickles."""
_SEVERITY_ERROR = 3
_LONGEST_REASON = 400
_MOST_READ = 2 * 1024**3
"""Bytes of external data that are read; more are mapped."""

# What comes before the reason: "[ONNXRuntimeError]", a number and its name, "Load model from FILE failed", and a place
# in the framework's own source, as "file.cc:1 Function" or "file.cc:1 void namespace::Function(arguments)".
_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : (?:Load model from .*? failed:)?")
_PLACE_IN_SOURCE = re.compile(r"\S+\.(?:cc|h):\d+ (?:[^()\"]*::[^()]*\([^()]*\)|\S+) ")

_DATATYPES = {
    "tensor(bool)": Datatype.BOOL,
    "tensor(uint8)": Datatype.UINT8,
    "tensor(uint16)": Datatype.UINT16,
    "tensor(uint32)": Datatype.UINT32,
    "tensor(uint64)": Datatype.UINT64,
    "tensor(int8)": Datatype.INT8,
    "tensor(int16)": Datatype.INT16,
    "tensor(int32)": Datatype.INT32,
    "tensor(int64)": Datatype.INT64,
    "tensor(float16)": Datatype.FP16,
    "tensor(bfloat16)": Datatype.BF16,
    "tensor(float)": Datatype.FP32,
    "tensor(double)": Datatype.FP64,
    "tensor(string)": Datatype.BYTES,
}


class Session:
    """One graph, callable from several threads at once. A call runs on whichever of its instances has least to do.

    Args:
        file: the ``.onnx`` file; external data is looked for beside it.
        settings: where and how it runs.
        confined: follows the links of external data, and refuses what leads out of the model's folder; that of `file`
            when absent.

    Attributes:
        file: the file it was made from.
        inputs: what the graph takes, -1 for a dimension of any size.
        outputs: what the graph gives, -1 for a dimension of any size.
        metadata: the file's ``metadata_props``.

    Raises:
        ModelError: when the file is missing, empty, no ONNX file, cut short, needs what ONNX Runtime does not have, or
            names other files than those of its folder.
    """

    def __init__(
        self, file: Path, settings: OnnxRuntimeSettings = _ON_CPU, confined: Callable[[Path], Path] | None = None
    ) -> None:
        _check_file(file)
        outside = check_external_data(file, confined or partial(confined_to, (file.parent.resolve(),)))
        # The framework costs 50 MB and a tenth of a second, which a server without ONNX models should not pay.
        framework = _framework()
        available = framework.get_available_providers()
        self._instances = [
            _instance(framework, file, outside, devices_called(name, available), settings.threads)
            for name in settings.devices or (CPU.name,)
            for _ in range(settings.instances)
        ]
        self._lock = threading.Lock()
        first: Any = self._instances[0].session
        self.file = file
        self.inputs = tuple(_spec(file, "input", each) for each in first.get_inputs())
        self.outputs = tuple(_spec(file, "output", each) for each in first.get_outputs())
        self.metadata: Mapping[str, str] = dict(first.get_modelmeta().custom_metadata_map)
        self._framework = framework
        self._has_bfloat = any(each.datatype is Datatype.BF16 for each in (*self.inputs, *self.outputs))
        self._names = [each.name for each in self.outputs]

    def run(self, feeds: Mapping[str, NDArray[Any]], names: Sequence[str] | None = None) -> list[NDArray[Any]]:
        """The outputs called `names`, else every output in the order of `outputs`.

        Raises:
            InferenceError: MODEL_FAILED with the framework's reason.
        """
        if len(self._instances) == 1:
            return self._run(self._instances[0], feeds, names or self._names)
        with self._lock:
            instance = min(self._instances, key=lambda each: each.calls)
            instance.calls += 1
        try:
            return self._run(instance, feeds, names or self._names)
        finally:
            with self._lock:
                instance.calls -= 1

    def _run(
        self, instance: "_Instance", feeds: Mapping[str, NDArray[Any]], names: Sequence[str]
    ) -> list[NDArray[Any]]:
        try:
            if self._has_bfloat:
                return self._run_values(instance.session, feeds, names)
            if instance.memory is not None:
                return run_bound(instance.session, instance.memory, self._framework.OrtValue, feeds, names)
            return instance.session.run(names, feeds)
        except Exception as error:
            raise InferenceError(ErrorKind.MODEL_FAILED, f"The model failed: {_first_line(error)}") from error

    def _run_values(self, session: Any, feeds: Mapping[str, NDArray[Any]], names: Sequence[str]) -> list[NDArray[Any]]:
        bits = {each.name for each in self.inputs if each.datatype is Datatype.BF16}
        make: Any = self._framework.OrtValue
        values = {
            name: make.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(array), _BFLOAT16_NUMBER)
            if name in bits
            else make.ortvalue_from_numpy(np.ascontiguousarray(array))
            for name, array in feeds.items()
        }
        return [_array(value) for value in session.run_with_ort_values(names, values)]


class _Instance:
    """ONNX Runtime's own session, and how many calls of it are under way."""

    def __init__(self, session: Any, memory: tuple[str, int] | None) -> None:
        self.session = session
        self.memory = memory
        self.calls = 0


def _instance(
    framework: Any, file: Path, outside: Mapping[str, Path], devices: Sequence[Device], threads: int
) -> _Instance:
    """The graph on the first of the devices that starts: a GPU may be missing though the framework is made for one."""
    *others, last = devices
    for device in others:
        with suppress(ModelError):
            return _instance_on(framework, file, outside, device, threads)
    return _instance_on(framework, file, outside, last, threads)


def _instance_on(framework: Any, file: Path, outside: Mapping[str, Path], device: Device, threads: int) -> _Instance:
    options = framework.SessionOptions()
    # Requests are the unit of parallelism: more threads inside a call would fight for the same cores under load.
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = framework.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = _SEVERITY_ERROR
    # Until the session is made, which copies what it needs of them.
    kept = _read_outside(options, file, outside)
    try:
        session = framework.InferenceSession(
            str(file),
            options,
            providers=list(device.providers),
            provider_options=[dict(each) for each in device.options],
        )
    except Exception as error:  # noqa: BLE001  the framework's exceptions have no common base, and all mean this
        raise ModelError(f"{file} cannot be loaded: {_first_line(error)}") from None
    del kept
    # Where a provider cannot start, the framework goes on without it and says so in its log only.
    if device.providers[0] not in session.get_providers():
        raise ModelError(f"{file} cannot be loaded on {device.name!r}: {device.providers[0]} could not be started")
    return _Instance(session, device.memory)


def _read_outside(options: Any, file: Path, outside: Mapping[str, Path]) -> list[bytes]:
    """Read the files of tensors, unless that takes too much memory at once; ONNX Runtime maps them then.

    A mapped file that is cut short while it is served, as copying another over it does, ends the process (SIGBUS).

    Raises:
        ModelError: when one cannot be read.
    """
    try:
        if sum(each.stat().st_size for each in outside.values()) > _MOST_READ:
            return []
        read = [each.read_bytes() for each in outside.values()]
    except OSError as error:
        raise ModelError(f"{file} names external data that cannot be read: {error.strerror}") from None
    if read:
        sizes = [len(each) for each in read]
        options.add_external_initializers_from_files_in_memory(list(outside), read, sizes)
    return read


def _array(value: Any) -> NDArray[Any]:
    """An output; NumPy has no bfloat16, whose bits are copied out of ONNX Runtime's memory instead."""
    if value.data_type() != _BFLOAT16:
        return value.numpy()
    shape = tuple(value.shape())
    bits = ctypes.string_at(value.data_ptr(), math.prod(shape) * 2)
    return np.frombuffer(bits, np.uint16).reshape(shape)


def _first_line(error: Exception) -> str:
    """The reason that an exception of ONNX Runtime gives, without its lines after the first."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    text = _PLACE_IN_SOURCE.sub("", _PREFIX.sub("", lines[0])).strip()
    if "rotobuf parsing failed" in text:
        return "it is not an ONNX file, or it is cut short"
    return text[:_LONGEST_REASON]


def _framework() -> Any:
    # Since 1.31 it would report to its maker over the network. It asks for leave when it is imported, and only then.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    return importlib.import_module("onnxruntime")


def _check_file(file: Path) -> None:
    if not file.is_file():
        raise ModelError(f"{file} does not exist" if not file.exists() else f"{file} is not a file")
    try:
        with file.open("rb") as opened:
            start = opened.read(len(_LFS_POINTER))
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror}") from None
    if not start:
        raise ModelError(f"{file} is empty")
    if start.startswith(_PICKLES):
        raise ModelError(
            f"{file} is a pickle, as PyTorch saves models, not an ONNX file; it is not opened, because that would run "
            f"what is in it; export the model to ONNX"
        )
    if start == _LFS_POINTER:
        raise ModelError(f"{file} is a Git LFS pointer, not the model itself; fetch it with `git lfs pull`")


def _spec(file: Path, role: str, argument: Any) -> TensorSpec:
    datatype = _DATATYPES.get(argument.type)
    if datatype is None:
        raise ModelError(f"{file}: {role} {argument.name!r} is a {argument.type}, which is not supported")
    shape = tuple(side if isinstance(side, int) else -1 for side in argument.shape)
    return TensorSpec(name=argument.name, datatype=datatype, shape=shape)
