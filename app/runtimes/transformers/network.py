"""The weights in their architecture, on their device."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from app.engine.description import Fact, Origin
from app.runtimes.transformers.architecture import Understood
from app.runtimes.transformers.framework import first_line, framework
from app.settings.model import ModelError, TransformersSettings

__all__ = ("Network", "load_network")

_MOST_NAMED = 3

_loading = threading.Lock()
"""Held while weights are read: transformers does so under switches that hold for the whole process, such as the default
dtype, and models loaded at once would find each other's."""


class Network(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A torch module that answers; several threads may call.

    Attributes:
        module: in evaluation mode, on its device.
        config: transformers' configuration of it.
        device: torch's name of the device.
        dtype: of its weights, and of the numbers it is given.
        turn: held by a call; free for all unless the module is compiled, which one call at a time may be.
        facts: what was decided while it was loaded.
    """

    module: Any
    config: Any
    device: str
    dtype: Any
    turn: AbstractContextManager[Any]
    facts: list[Fact]

    def __call__(self, inputs: Mapping[str, Any]) -> Any:
        """The module's outputs, on its device, for `inputs`, which may be anywhere."""
        with self.turn, framework().torch.inference_mode():
            return self.module(**self.placed(inputs))

    def placed(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """`inputs` on the module's device, floating-point tensors in its dtype."""
        found: dict[str, Any] = {}
        for name, value in inputs.items():
            found[name] = value
            if framework().torch.is_tensor(value):
                found[name] = value.to(self.device, self.dtype) if value.is_floating_point() else value.to(self.device)
        return found


def _off_the_file(module: Any) -> Any:
    """`module` with its weights in memory of their own.

    They come mapped from their file, and one that is cut short while it is served, as copying another over it does,
    would end the process (SIGBUS). One at a time, so that no more than one is there twice.
    """
    for each in (*module.parameters(), *module.buffers()):
        each.data = each.data.clone()
    return module


def load_network(understood: Understood) -> Network:
    """Read the weights; nothing but safetensors, every weight of the architecture, in its shape.

    Raises:
        ModelError: with a sentence for the model's owner.
    """
    torch, transformers = framework().torch, framework().transformers
    folder, settings = understood.source.folder, understood.source.settings.transformers
    device = _device(torch, settings, folder.name)
    dtype = _dtype(torch, settings, device)
    try:
        with _loading:
            module, report = getattr(transformers, understood.auto).from_pretrained(
                folder,
                config=understood.config,
                dtype=dtype,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    except Exception as error:
        raise ModelError(f"{folder}: the weights cannot be loaded: {first_line(error)}") from error
    _check_report(report, str(folder))
    try:
        module = _off_the_file(module.eval()) if device == "cpu" else module.eval().to(device)
    except Exception as error:
        raise ModelError(f"{folder}: it cannot be put on {device}: {first_line(error)}") from error
    if settings.compile:
        module.compile()
    facts = [
        Fact("device", device, _told(settings.device)),
        Fact("dtype", str(module.dtype).removeprefix("torch."), _told(settings.dtype)),
    ]
    if settings.compile:
        facts.append(Fact("compiled", "yes", Origin.DECLARED))
    turn = threading.Lock() if settings.compile else nullcontext()
    return Network(module=module, config=module.config, device=device, dtype=module.dtype, turn=turn, facts=facts)


def _told(value: str) -> Origin:
    return Origin.MACHINE if value == "auto" else Origin.DECLARED


def _device(torch: Any, settings: TransformersSettings, name: str) -> str:
    available = torch.cuda.is_available()
    if settings.device == "auto":
        return "cuda" if available else "cpu"
    if settings.device.startswith("cuda") and not available:
        raise ModelError(f"{name}: transformers.device: {settings.device} is declared, but torch finds no such device")
    return settings.device


def _dtype(torch: Any, settings: TransformersSettings, device: str) -> Any:
    if settings.dtype == "auto":
        # A processor core is slow in 16 bits, and less exact; a GPU takes the weights as they were saved.
        return torch.float32 if device == "cpu" else "auto"
    return getattr(torch, settings.dtype)


def _check_report(report: Mapping[str, Any], folder: str) -> None:
    mismatched: list[tuple[str, Sequence[int], Sequence[int]]] = sorted(report.get("mismatched_keys") or ())
    if mismatched:
        name, saved, wanted = mismatched[0]
        raise ModelError(
            f"{folder}: {name} is {list(saved)} in the weights, but {list(wanted)} by config.json; "
            "is the number of labels wrong?"
        )
    missing: list[str] = sorted(report.get("missing_keys") or ())
    if missing:
        named = ", ".join(missing[:_MOST_NAMED]) + (", ..." if len(missing) > _MOST_NAMED else "")
        raise ModelError(f"{folder}: the weights lack {len(missing)} of the architecture's: {named}")
