"""The neutral request. Each protocol has its own `decode` that creates it."""

import re
from collections.abc import Mapping

import msgspec

from tasks.inference.error import InferenceError
from tasks.inference.tensor import InputTensor

_INPUT_PARAMETER = re.compile(r"^inputs\[(?P<index>\d+)\]\.(?P<path>parameters\.(?P<name>[^.\[]+).*)$", re.DOTALL)


class InferenceRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One call of one model.

    Attributes:
        id: the client's id of the request. Protocols that require an id in responses generate a missing one.
        model_name: the name of the model.
        model_version: its version, None for the latest.
        inputs: in the order of the request.
        parameters: parameters of the request, the defaults of all inputs.
        timeout: the client's timeout in seconds since arrival; None for no timeout.
    """

    id: str
    model_name: str
    model_version: str | None = None
    inputs: tuple[InputTensor, ...]
    parameters: Mapping[str, object] = {}
    timeout: float | None = None

    def parameter(self, index: int, name: str) -> object:
        """Return parameter `name` of input `index`, by default that of the request; None if both lack it."""
        own_value = self.inputs[index].parameters.get(name)
        return own_value if name not in self.parameters or not _is_null(own_value) else self.parameters[name]

    def parameters_of(self, index: int) -> Mapping[str, object]:
        """Return the parameters of input `index` merged over those of the request."""
        own_parameters = self.inputs[index].parameters
        if not self.parameters:
            return own_parameters
        return {
            **own_parameters,
            **self.parameters,
            **{name: value for name, value in own_parameters.items() if not _is_null(value)},
        }

    def locate(self, error: InferenceError) -> InferenceError:
        """Return `error` with the path of the request's parameter if the input inherited it."""
        match = _INPUT_PARAMETER.match(error.path)
        if match is None or int(match["index"]) >= len(self.inputs):
            return error
        name = match["name"]
        shared_value, own_value = self.parameters.get(name), self.inputs[int(match["index"])].parameters.get(name)
        if shared_value is None or not (_is_null(own_value) or own_value is shared_value):
            return error
        return InferenceError(error.kind, error.message, match["path"])


def _is_null(value: object) -> bool:
    return value is None or (isinstance(value, msgspec.Raw) and bytes(value) == b"null")
