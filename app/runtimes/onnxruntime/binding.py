"""Run a session with ONNX Runtime's IOBinding, which copies inputs and outputs once each."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ("run_bound",)


def run_bound(
    session: Any, memory: tuple[str, int], ort_value: Any, feeds: Mapping[str, NDArray[Any]], names: Sequence[str]
) -> list[NDArray[Any]]:
    """Run the session on a device and return the outputs `names`.

    Args:
        session: ONNX Runtime's session.
        memory: ONNX Runtime's name of the device memory, and the device number.
        ort_value: ONNX Runtime's class `OrtValue`.
        feeds: inputs by name.
        names: outputs to return.
    """
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, ort_value.ortvalue_from_numpy(np.ascontiguousarray(array), *memory))
    for name in names:
        binding.bind_output(name, "cpu")
    session.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()
