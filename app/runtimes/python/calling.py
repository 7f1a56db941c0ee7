"""How ``predict`` wants to be called, which it says by the names of its arguments."""

import inspect
from collections.abc import Sequence
from typing import Any

import msgspec

from app.runtimes.python.kinds import PROMPT, PROMPTS, Kind
from app.settings.model import ModelError

__all__ = ("CallForm", "call_form")


class CallForm(msgspec.Struct, frozen=True, kw_only=True):
    """How ``predict`` is called.

    Attributes:
        names: of the arguments that it takes, in its own order.
        batch: whether it takes all data of a request at once; one after the other otherwise.
        each_prompt: whether it takes the prompts one after the other too.
        streams: whether it yields its answer in pieces.
    """

    names: Sequence[str]
    batch: bool
    each_prompt: bool
    streams: bool

    def __str__(self) -> str:
        """For people to read."""
        return f"predict({', '.join(self.names)}){', told while it is made' if self.streams else ''}"


def call_form(predict: Any, kind: Kind[Any, Any]) -> CallForm:
    """What the signature of ``predict`` asks for.

    Args:
        predict: the function, bound or not.
        kind: says what there is to be had.

    Raises:
        ModelError: when it asks for what there is not, or for no data.
    """
    one_by_one = [PROMPT] if PROMPTS in kind.beside else []
    choices = [kind.one, *([kind.many] if kind.many else []), *one_by_one, *kind.beside]
    names: list[str] = []
    for name, parameter in inspect.signature(predict).parameters.items():
        if name == "self" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name in choices and parameter.kind is not parameter.POSITIONAL_ONLY:
            names.append(name)
        elif parameter.default is parameter.empty:
            raise ModelError(f"predict() takes {name!r}, but may take only {', '.join(choices)}, by these names")
    data = [name for name in names if name in (kind.one, kind.many)]
    if len(data) != 1:
        wanted = " or ".join(each for each in (kind.one, kind.many) if each)
        raise ModelError(f"predict() has to take {wanted} after self, by this name, got predict({', '.join(names)})")
    form = CallForm(
        names=names,
        batch=kind.many in names,
        each_prompt=PROMPT in names,
        streams=inspect.isgeneratorfunction(predict) or inspect.isasyncgenfunction(predict),
    )
    if form.each_prompt and (form.batch or PROMPTS in names):
        raise ModelError(f"predict() takes prompt with image only, and without prompts, got {form}")
    if form.streams and kind.streamed not in names:
        needed = " and ".join(dict.fromkeys((kind.one, kind.streamed))) if kind.streamed else ""
        where = f"only where it takes {needed}" if needed else "only where its answers are texts"
        raise ModelError(f"predict() may yield texts {where}, got {form}")
    return form
