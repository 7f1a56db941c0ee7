"""Load a model's weights onto its device."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from app.core.settings.model import ModelError
from app.plugins.transformers.text.library import first_line, transformers
from app.plugins.transformers.torch.architecture import ModelSpec
from app.plugins.transformers.torch.framework import load_torch
from app.plugins.transformers.torch.settings import TransformersSettings
from metadata.model import Fact, Origin

_MAX_NAMED = 3

_loading = threading.Lock()
"""Serialises loads, because transformers changes process-wide state, such as the default dtype, during a load."""


class Network(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A torch module. Several threads may call it.

    Attributes:
        module: the module in evaluation mode, on its device.
        config: transformers' configuration.
        facts: decisions taken during the load.
    """

    module: Any
    config: Any
    facts: list[Fact]

    def __call__(self, inputs: Mapping[str, Any]) -> Any:
        """Return the module's outputs, on its device, for `inputs` on any device."""
        with load_torch().inference_mode():
            return self.module(**self.to_device(inputs))

    def to_device(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Move arrays and tensors to the module's device, and floating-point numbers to its dtype."""
        torch, device, dtype = load_torch(), self.module.device, self.module.dtype
        moved: dict[str, Any] = {}
        for name, value in inputs.items():
            value = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            moved[name] = value
            if torch.is_tensor(value):
                moved[name] = value.to(device, dtype) if value.is_floating_point() else value.to(device)
        return moved


def load_network(spec: ModelSpec) -> Network:
    """Load the weights from safetensors, and check that all weights exist in the expected shapes.

    Raise ModelError if the weights cannot be loaded, are missing, or have other shapes.
    """
    torch = load_torch()
    folder, settings = spec.source.folder, spec.source.settings.of(TransformersSettings)
    device = _device(torch, settings, folder.name)
    dtype = _dtype(torch, settings, device)
    try:
        with _loading:
            module, report = getattr(transformers(), spec.auto).from_pretrained(
                folder, config=spec.config, dtype=dtype, local_files_only=True, trust_remote_code=False,
                use_safetensors=True, ignore_mismatched_sizes=True, output_loading_info=True,
            )  # fmt: skip
    except Exception as error:
        raise ModelError(f"{folder}: the weights cannot be loaded: {first_line(error)}") from error
    _check_report(report, str(folder))
    try:
        module = module.eval().to(device)
        if device == "cpu":
            # A mapped file that is truncated while the model serves, as by a copy over it, would end the process with
            # SIGBUS. One tensor at a time limits the peak of memory.
            for tensor in (*module.parameters(), *module.buffers()):
                tensor.data = tensor.data.clone()
    except Exception as error:
        raise ModelError(f"{folder}: the model cannot be moved to {device}: {first_line(error)}") from error
    facts = [
        Fact("device", device, _origin(settings.device)),
        Fact("dtype", str(module.dtype).removeprefix("torch."), _origin(settings.dtype)),
    ]
    return Network(module=module, config=module.config, facts=facts)


def _origin(value: str) -> Origin:
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
        # On a CPU 16-bit types are slow and less precise. A GPU uses the dtype of the saved weights.
        return torch.float32 if device == "cpu" else "auto"
    return getattr(torch, settings.dtype)


def _check_report(report: Mapping[str, Any], folder: str) -> None:
    mismatched: list[tuple[str, Sequence[int], Sequence[int]]] = sorted(report.get("mismatched_keys") or ())
    if mismatched:
        name, saved, expected = mismatched[0]
        raise ModelError(
            f"{folder}: {name} is {list(saved)} in the weights, but {list(expected)} in config.json; "
            "is the number of labels wrong?"
        )
    missing: list[str] = sorted(report.get("missing_keys") or ())
    if missing:
        names = ", ".join(missing[:_MAX_NAMED]) + (", ..." if len(missing) > _MAX_NAMED else "")
        raise ModelError(f"{folder}: {len(missing)} weights of the architecture are missing: {names}")
