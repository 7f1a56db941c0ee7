"""Derive the arguments of ``predict`` and ``explain`` from their signatures."""

import inspect
from collections.abc import Sequence
from typing import Any

import msgspec

from app.runtimes.python.task_adapters import PROMPT, PROMPTS, TaskAdapter
from app.settings.model import ModelError

INPUTS, PREDICTIONS = "inputs", "predictions"
"""The arguments of ``explain`` for what ``predict`` got, and for what it returned."""


class CallForm(msgspec.Struct, frozen=True, kw_only=True):
    """How ``predict`` is called.

    Attributes:
        names: names of its arguments, in order.
        batch: whether one call takes all samples of a request; otherwise each call takes one sample.
        call_per_prompt: whether each call takes one prompt.
        streams: whether it yields its answer in chunks.
    """

    names: Sequence[str]
    batch: bool
    call_per_prompt: bool
    streams: bool

    def __str__(self) -> str:
        """Return the signature for logs and messages."""
        return f"predict({', '.join(self.names)}){', streamed' if self.streams else ''}"


def call_form(predict: Any, adapter: TaskAdapter[Any, Any]) -> CallForm:
    """Derive the call form from the signature of ``predict``.

    Args:
        predict: the function, bound or not.
        adapter: the arguments that the task offers.

    Raises:
        ModelError: if the signature has unknown arguments, or none for the data.
    """
    one_by_one = [PROMPT] if PROMPTS in adapter.optional_arguments else []
    choices = [
        adapter.sample_argument,
        *([adapter.batch_argument] if adapter.batch_argument else []),
        *one_by_one,
        *adapter.optional_arguments,
    ]
    names = _argument_names("predict()", predict, choices)
    data_arguments = [name for name in names if name in (adapter.sample_argument, adapter.batch_argument)]
    if len(data_arguments) != 1:
        expected = " or ".join(name for name in (adapter.sample_argument, adapter.batch_argument) if name)
        raise ModelError(f"predict() must take {expected} after self, by this name, got predict({', '.join(names)})")
    form = CallForm(
        names=names,
        batch=adapter.batch_argument in names,
        call_per_prompt=PROMPT in names,
        streams=inspect.isgeneratorfunction(predict) or inspect.isasyncgenfunction(predict),
    )
    if form.call_per_prompt and (form.batch or PROMPTS in names):
        raise ModelError(f"predict() can take prompt only together with image and without prompts, got {form}")
    if form.streams and adapter.streaming_argument not in names:
        condition = "its answers are texts"
        if adapter.streaming_argument:
            needed = dict.fromkeys((adapter.sample_argument, adapter.streaming_argument))
            condition = f"it takes {' and '.join(needed)}"
        raise ModelError(f"predict() may yield texts only if {condition}, got {form}")
    return form


def explain_arguments(explain: Any, adapter: TaskAdapter[Any, Any]) -> Sequence[str]:
    """Return the names of the arguments of ``explain``.

    Args:
        explain: the function, bound or not.
        adapter: the arguments that the task offers.

    Raises:
        ModelError: if the signature has unknown arguments, or none for the inputs.
    """
    names = _argument_names("explain()", explain, (INPUTS, PREDICTIONS, *adapter.optional_arguments))
    if INPUTS not in names:
        raise ModelError(f"explain() must take {INPUTS} after self, by this name, got explain({', '.join(names)})")
    if inspect.isgeneratorfunction(explain) or inspect.isasyncgenfunction(explain):
        raise ModelError("explain() must return a list, but it yields")
    return names


def _argument_names(function_name: str, function: Any, choices: Sequence[str]) -> list[str]:
    names: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name in choices and parameter.kind is not parameter.POSITIONAL_ONLY:
            names.append(name)
        elif parameter.default is parameter.empty:
            raise ModelError(f"{function_name} takes {name!r}, but may take only {', '.join(choices)}, by these names")
    return names
