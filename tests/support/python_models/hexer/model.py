"""A tensor model that shows the bytes of each element, and the type in which it got them."""

import numpy as np


class Hexer:
    task_type = "TENSOR"
    inputs = {"input": ("BYTES", (-1,))}  # noqa: RUF012  read once
    outputs = {"hex": ("BYTES", (-1,))}  # noqa: RUF012

    def predict(self, tensors: dict[str, np.ndarray]) -> dict[str, list[str]]:
        return {"hex": [self._describe(element) for element in tensors["input"]]}

    def _describe(self, element: str | bytes) -> str:
        data = element.encode() if isinstance(element, str) else element
        return f"{type(element).__name__} {data.hex()}"
