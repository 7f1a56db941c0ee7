"""Calls whose inputs are copied to a device once, and whose outputs come back once (ONNX Runtime's IOBinding)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ("run_bound",)


def run_bound(
    session: Any, memory: tuple[str, int], make: Any, feeds: Mapping[str, NDArray[Any]], names: Sequence[str]
) -> list[NDArray[Any]]:
    """The outputs called `names`.

    Args:
        session: ONNX Runtime's own.
        memory: its name of the device's memory, and the device's number.
        make: its `OrtValue`.
        feeds: the inputs by name.
        names: the outputs that are wanted.
    """
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, make.ortvalue_from_numpy(np.ascontiguousarray(array), *memory))
    for name in names:
        binding.bind_output(name, "cpu")
    session.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()
