"""Read the texts of a request, for all text tasks.

There are two forms. In the first, every BYTES input holds texts and has its own parameters. The second is the
convention of mlserver-huggingface: the inputs of a request are the arguments of one call, with one BYTES input for the
text (``args``) and one input for each parameter, with its name.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar, get_args

import msgspec

from tasks.inference.error import InferenceError, invalid, quote_value
from tasks.inference.limits import Limits, check_text
from tasks.inference.parameters import parameter_types
from tasks.inference.request import InferenceRequest, read_parameters
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor, TensorSpec
from tasks.task import InputGroup
from tasks.vision.filtering import SelectionParameters, reject_candidate_labels
from tasks.vision.request import check_count

TEXT_INPUT = TensorSpec(name="args", datatype=Datatype.BYTES, shape=(-1,))
"""The declared input of text tasks: any number of texts, with the name of mlserver-huggingface."""

ParametersT = TypeVar("ParametersT", bound=msgspec.Struct)
SelectionT = TypeVar("SelectionT", bound=SelectionParameters)


class TextItem(msgspec.Struct, frozen=True, eq=False):
    """A text, and its path in the request for error messages."""

    text: str
    path: str


class TextInput(msgspec.Struct, Generic[ParametersT], frozen=True, eq=False):
    """The input of a text model: a text and the parameters of its answer."""

    item: TextItem
    parameters: ParametersT


def text_groups(
    request: InferenceRequest,
    defaults: Mapping[str, object],
    limits: Limits,
    parameters_type: type[ParametersT],
    check: Callable[[ParametersT, str], ParametersT],
) -> list[InputGroup[TextInput[ParametersT]]]:
    """Return one group for each text input, with one item for each of its texts.

    An input with the name of a parameter is an argument: it overrides the request's value of this parameter for all
    texts, and has no output. An input of numbers with ``content_type: raw`` is an argument too; it is ignored if no
    parameter has its name. `check` gets the parameters of an input and their path, and returns those to use. Raise
    INVALID_REQUEST or TOO_LARGE, naming the field.
    """
    check_count(request.inputs, limits)
    types = parameter_types(parameters_type)
    arguments: dict[str, object] = {}
    texts: list[tuple[int, BytesTensor]] = []
    for index, tensor in enumerate(request.inputs):
        path = f"inputs[{index}]"
        if tensor.name in types:
            if tensor.name in arguments:
                raise invalid(f"Expected each argument once, got {quote_value(tensor.name)} again", f"{path}.name")
            arguments[tensor.name] = _argument(tensor, parameters_type, limits, f"{path}.data")
        elif isinstance(tensor, BytesTensor):
            texts.append((index, tensor))
        elif request.parameter(index, "content_type") != "raw":
            raise invalid(f"Expected BYTES with texts, got {tensor.datatype}", f"{path}.datatype")
    if not texts:
        raise invalid("Expected a text among the inputs, got arguments only", "inputs")
    groups: list[InputGroup[TextInput[ParametersT]]] = []
    for index, tensor in texts:
        path = f"inputs[{index}]"
        parameters = read_parameters(
            parameters_type, defaults, request.parameters, arguments, tensor.parameters, path=f"{path}.parameters"
        )
        parameters = check(parameters, f"{path}.parameters")
        path = f"{path}.data"
        if not tensor.elements:
            raise invalid("Expected at least one text, got none", path)
        items = [
            TextInput(TextItem(text, f"{path}[{position}]"), parameters)
            for position, text in enumerate(_strings(tensor, limits, path))
        ]
        groups.append(InputGroup(name=tensor.name, index=index, parameters=request.parameters_of(index), items=items))
    return groups


class LabelTask(Generic[SelectionT]):
    """The part of a task that is the same for all tasks that find labels in texts."""

    parameters_type: type[SelectionT]
    inputs = (TEXT_INPUT,)

    def decode(
        self, request: InferenceRequest, defaults: Mapping[str, object], limits: Limits, /
    ) -> list[InputGroup[TextInput[SelectionT]]]:
        return text_groups(request, defaults, limits, self.parameters_type, reject_candidate_labels)


def _strings(tensor: BytesTensor, limits: Limits, path: str) -> Sequence[str]:
    texts: list[str] = []
    for index, element in enumerate(tensor.elements):
        try:
            text = element.text()
        except InferenceError as error:
            raise error.with_prefix(f"{path}[{index}]") from None
        check_text(text, limits, f"{path}[{index}]")
        texts.append(text)
    return texts


def _argument(tensor: InputTensor, parameters_type: type[msgspec.Struct], limits: Limits, path: str) -> object:
    if isinstance(tensor, BytesTensor):
        values: list[Any] = list(_strings(tensor, limits, path))
    elif tensor.datatype is Datatype.BF16:
        raise invalid("Expected an argument in a datatype other than BF16", path)
    else:
        values = tensor.data.ravel().tolist()
    if not values:
        raise invalid(f"Expected a value for {tensor.name!r}, got none", path)
    value: object = values[0] if len(values) == 1 else values
    expected = parameter_types(parameters_type)[tensor.name]
    if bool in (expected, *get_args(expected)) and value in (0, 1):
        # Boolean arguments come as numbers: as INT8 on the Chariot page.
        value = bool(value)
    try:
        read_parameters(parameters_type, {tensor.name: value})
    except InferenceError as error:
        raise InferenceError(error.kind, error.message, path) from None
    return value
