"""Where graphs run: the execution provider of ONNX Runtime, and its options, for each device that settings name."""

import re
from collections.abc import Mapping, Sequence

import msgspec

from app.settings.model import ModelError

__all__ = ("CPU", "Device", "device_called", "devices_called")

_CPU_PROVIDER = "CPUExecutionProvider"
_KINDS = {
    "cpu": _CPU_PROVIDER,
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
}
_PREFERENCE = ("cuda", "coreml", "openvino", "cpu")
"""For `auto`. TensorRT is to be asked for by name, because it builds an engine for minutes before it first answers."""
_NAMED = re.compile(r"(?P<kind>[a-z]+)(?::(?P<index>\w+))?")


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One place to run a graph.

    Attributes:
        name: as settings have it.
        providers: what ONNX Runtime is asked for, best first; what one does not know is done by the next.
        options: of each provider, in their order.
        memory: ONNX Runtime's name of the memory that inputs are copied to, and its number; None for main memory.
    """

    name: str
    providers: Sequence[str] = (_CPU_PROVIDER,)
    options: Sequence[Mapping[str, str]] = ({},)
    memory: tuple[str, int] | None = None


CPU = Device(name="cpu")


def devices_called(name: str, available: Sequence[str]) -> Sequence[Device]:
    """What settings mean by `name`, best first: one device, or for `auto` every kind that this ONNX Runtime has.

    Args:
        name: `cpu`, `cuda:1`, `tensorrt:0`, `openvino:GPU`, `coreml`, or `auto`.
        available: the execution providers of this ONNX Runtime.

    Raises:
        ModelError: as `device_called`.
    """
    kinds = [kind for kind in _PREFERENCE if _KINDS[kind] in available] if name == "auto" else [name]
    return [device_called(kind, available) for kind in kinds]


def device_called(name: str, available: Sequence[str]) -> Device:
    """The device that settings call `name`: `cpu`, `cuda:1`, `tensorrt:0`, `openvino:GPU` or `coreml`.

    Args:
        name: of the device.
        available: the execution providers of this ONNX Runtime.

    Raises:
        ModelError: when this ONNX Runtime has no provider for it.
    """
    found = _NAMED.fullmatch(name)
    provider = _KINDS.get(found["kind"]) if found else None
    if found is None or provider is None:
        raise ModelError(f"device: Expected auto, {', '.join(_KINDS)}, such as cuda:0, got {name!r}")
    kind, index = found["kind"], found["index"]
    if provider not in available:
        has = ", ".join(each for each in available if each in _KINDS.values())
        message = f"device {name!r} needs an ONNX Runtime with {provider}; the one that is installed has {has}"
        raise ModelError(message)
    match kind:
        case "cuda" | "tensorrt":
            number = _number(name, index)
            others = ("cuda",) if kind == "tensorrt" and _KINDS["cuda"] in available else ()
            providers = [provider, *(_KINDS[each] for each in others), _CPU_PROVIDER]
            options = [*({"device_id": str(number)} for _ in providers[:-1]), {}]
            return Device(name=name, providers=providers, options=options, memory=("cuda", number))
        case "openvino":
            options = [{"device_type": index or "CPU"}, {}]
            return Device(name=name, providers=[provider, _CPU_PROVIDER], options=options)
        case "coreml":
            return Device(name=name, providers=[provider, _CPU_PROVIDER], options=[{}, {}])
        case _:
            return CPU


def _number(name: str, index: str | None) -> int:
    if index is None:
        return 0
    if not index.isdecimal():
        raise ModelError(f"device: Expected a number behind the colon, got {name!r}")
    return int(index)
