"""Map the device names of the settings to execution providers of ONNX Runtime and their options."""

import re
from collections.abc import Mapping, Sequence

import msgspec

from app.core.settings.model import ModelError

_KINDS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
}
_PREFERENCE = ("cuda", "openvino", "cpu")
"""Order for `auto`. TensorRT must be named explicitly, because it builds its engine for minutes at the first call."""
_NAMED = re.compile(r"(?P<kind>[a-z]+)(?::(?P<index>\w+))?")


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A device that can run a graph.

    Attributes:
        providers: execution providers in order of preference with their options; each runs the operators that earlier
            ones lack.
    """

    name: str
    providers: Sequence[tuple[str, Mapping[str, str]]]

    @property
    def memory(self) -> tuple[str, int] | None:
        """Return ONNX Runtime's name and number of the device memory for inputs; None for main memory."""
        _, options = self.providers[0]
        return ("cuda", int(options["device_id"])) if "device_id" in options else None


_CPU: tuple[str, Mapping[str, str]] = (_KINDS["cpu"], {})
CPU = Device(name="cpu", providers=[_CPU])


def parse_devices(name: str, available: Sequence[str]) -> Sequence[Device]:
    """Return the devices for `name` in order of preference: one device, or all available kinds for `auto`.

    Raise ModelError if see `parse_device`.
    """
    kinds = [kind for kind in _PREFERENCE if _KINDS[kind] in available] if name == "auto" else [name]
    return [parse_device(kind, available) for kind in kinds]


def parse_device(name: str, available: Sequence[str]) -> Device:
    """Return the device for a name in the settings: `cpu`, `cuda:1`, `tensorrt:0` or `openvino:GPU`.

    Raise ModelError if the name is invalid, or this ONNX Runtime has no provider for it.
    """
    match = _NAMED.fullmatch(name)
    provider = _KINDS.get(match["kind"]) if match else None
    if match is None or provider is None:
        raise ModelError(f"device: Expected auto, {', '.join(_KINDS)}, such as cuda:0, got {name!r}")
    kind, index = match["kind"], match["index"]
    if provider not in available:
        installed = ", ".join(known for known in available if known in _KINDS.values())
        message = f"device {name!r} needs an ONNX Runtime with {provider}; the installed one has {installed}"
        raise ModelError(message)
    if kind == "cpu":
        return CPU
    if kind not in ("cuda", "tensorrt"):
        options = {"device_type": index or "CPU"} if kind == "openvino" else {}
        return Device(name=name, providers=[(provider, options), _CPU])
    if index is not None and not index.isdecimal():
        raise ModelError(f"device: Expected a number after the colon, got {name!r}")
    options = {"device_id": str(int(index or 0))}
    others = [(_KINDS["cuda"], options)] if kind == "tensorrt" and _KINDS["cuda"] in available else []
    return Device(name=name, providers=[(provider, options), *others, _CPU])
