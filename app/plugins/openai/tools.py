"""Answers in JSON: the schema that a request asks for, and the functions that a model may call.

Each model learns of functions by a text in the conversation, and calls one with a JSON object, as most models are
trained to do. The calls in a conversation are written in the same form.
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.plugins.openai.wire import (
    WireCalledFunction,
    WireChatRequest,
    WireFunction,
    WireResponseFormat,
    WireTool,
    WireToolCall,
)
from tasks.inference.error import invalid

_MAX_CALLS = 16
_TAGGED = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_LENIENT = {"lenient": True, "coerce_one_of": True}


class _Call(msgspec.Struct, frozen=True):
    name: str
    arguments: msgspec.Raw


class AnswerFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The form of an answer.

    Attributes:
        member: the member of the request with the schema, for errors.
        parameters: parameters of the task for this form.
        functions: the names of the functions that the model may call.
        instruction: the text that describes them to the model.
    """

    member: str = "response_format"
    parameters: Mapping[str, object] = {}
    functions: Sequence[str] = ()
    instruction: str = ""

    def calls(self, answer: str) -> list[WireToolCall]:
        """Return the calls in a complete answer; none if it is a text, or ended early."""
        calls: list[_Call] = []
        for body in (_TAGGED.findall(answer) or [answer]) if self.functions else ():
            try:
                found = msgspec.json.decode(body, type=_Call | list[_Call])
            except msgspec.MsgspecError:
                return []
            calls += found if isinstance(found, list) else [found]
        if any(call.name not in self.functions for call in calls):
            return []
        return [
            WireToolCall(
                id=f"call_{uuid.uuid4().hex[:24]}",
                type="function",
                function=WireCalledFunction(name=call.name, arguments=bytes(call.arguments).decode()),
            )
            for call in calls
        ]


def answer_format(wire: WireChatRequest) -> AnswerFormat:
    """Return the form of the answer that a request asks for. Raise INVALID_REQUEST, naming the member."""
    schema = _response_schema(wire.response_format)
    choice, functions = wire.tool_choice, [tool.function for tool in wire.tools or ()]
    if isinstance(choice, WireTool):
        functions = [function for function in functions if function.name == choice.function.name]
    if not functions and choice not in (None, "none", "auto"):
        raise invalid("Expected one of the functions in tools", "tool_choice")
    if not functions or choice == "none":
        return AnswerFormat(parameters={} if schema is None else {"json_schema": schema})
    names = [function.name for function in functions]
    if len(set(names)) < len(names):
        raise invalid("Expected each name once", "tools")
    is_named, is_auto = isinstance(choice, WireTool), choice in (None, "auto")
    is_parallel = wire.parallel_tool_calls is not False and not is_named
    calls = _call_schema(functions, is_parallel=is_parallel)
    if is_auto and schema is not None:
        calls = {**calls, "anyOf": [*calls["anyOf"], {"$id": "answer:///", **schema}]}
    return AnswerFormat(
        member="tools",
        parameters={"json_schema": calls, "json_only": not is_auto or schema is not None},
        functions=names,
        instruction=_instruction(functions, is_parallel=is_parallel, is_auto=is_auto),
    )


def text_part(text: str) -> dict[str, str]:
    """Return a part of a message in the neutral request."""
    return {"type": "text", "text": text}


def instruct(messages: Sequence[Mapping[str, Any]], instruction: str) -> None:
    """Add an instruction to the first of `messages`, before its texts. Not all templates have system messages."""
    if messages and instruction:
        parts = messages[0]["content"]
        place = next((index for index, part in enumerate(parts) if part["type"] == "text"), len(parts))
        parts.insert(place, text_part(f"{instruction}\n\n"))


def called(calls: Sequence[WireToolCall], path: str) -> str:
    """Return calls in a conversation as the text with which a model makes them. Raise INVALID_REQUEST."""
    try:
        functions = [one.function for one in calls]
        bodies = [{"name": one.name, "arguments": msgspec.json.decode(one.arguments)} for one in functions]
    except (msgspec.DecodeError, RecursionError):
        raise invalid("Expected JSON in the arguments of each call", path) from None
    return msgspec.json.encode(bodies[0] if len(bodies) == 1 else bodies).decode()


def _response_schema(response_format: WireResponseFormat | None) -> dict[str, Any] | None:
    if response_format is None or response_format.type == "text":
        return None
    if response_format.type == "json_object":
        return {"type": "object"}
    if response_format.json_schema is None:
        raise invalid("Expected an object with the schema", "response_format.json_schema")
    schema = response_format.json_schema.schema or {"type": "object"}
    return schema if response_format.json_schema.strict else {"x-guidance": _LENIENT, **schema}


def _call_schema(functions: Sequence[WireFunction], *, is_parallel: bool) -> dict[str, Any]:
    def call(function: WireFunction) -> dict[str, Any]:
        # With an id, references such as #/$defs/Color stay within the schema of the function.
        arguments = {"$id": f"function:///{function.name}", **_arguments(function)}
        properties = {"name": {"const": function.name}, "arguments": arguments}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    one = {"$ref": "#/$defs/call"}
    several = {"type": "array", "items": one, "minItems": 1, "maxItems": _MAX_CALLS}
    schema = {"anyOf": [one, several] if is_parallel else [one], "$defs": {"call": {"anyOf": [*map(call, functions)]}}}
    return schema if all(function.strict for function in functions) else {"x-guidance": _LENIENT, **schema}


def _arguments(function: WireFunction) -> dict[str, Any]:
    schema = function.parameters or {"type": "object", "properties": {}}
    return {"additionalProperties": False, **schema} if "properties" in schema else schema


def _instruction(functions: Sequence[WireFunction], *, is_parallel: bool, is_auto: bool) -> str:
    described = [
        msgspec.json.encode(
            {"name": function.name, "description": function.description or "", "parameters": _arguments(function)}
        ).decode()
        for function in functions
    ]
    return "\n".join(
        [
            "You can call these functions:",
            *described,
            'To call one, answer only with JSON: {"name": "<its name>", "arguments": {...}}',
            *(["To call several, answer with a JSON array of such objects."] if is_parallel else []),
            "Otherwise answer with a text." if is_auto else "You must call a function.",
        ]
    )
