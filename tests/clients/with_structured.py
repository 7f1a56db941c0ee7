"""Get structured answers with the openai SDK, instructor, LangChain and LiteLLM, from a model with random weights."""

import importlib
import json
import sys
from typing import Any

import pydantic

from tests.clients.checks import run

openai: Any = importlib.import_module("openai")
instructor: Any = importlib.import_module("instructor")
langchain: Any = importlib.import_module("langchain_openai")
messages: Any = importlib.import_module("langchain_core.messages")
litellm: Any = importlib.import_module("litellm")

QUESTION = [{"role": "user", "content": "Which shape do you see?"}]
OPTIONS = {"model": "talker", "temperature": 1.0, "max_tokens": 300}


class Shape(pydantic.BaseModel):
    """A shape in an image."""

    color: str = pydantic.Field(pattern="^(red|blue)$")
    count: int = pydantic.Field(ge=0, le=9)


TOOL = {"type": "function", "function": {"name": "Shape", "parameters": Shape.model_json_schema()}}


def check_parse(client: Any) -> None:
    (choice,) = client.chat.completions.parse(messages=QUESTION, response_format=Shape, **OPTIONS).choices
    assert isinstance(choice.message.parsed, Shape)
    tool = openai.pydantic_function_tool(Shape)
    forced = {"messages": QUESTION, "tools": [tool], "tool_choice": "required", **OPTIONS}
    (choice,) = client.chat.completions.parse(**forced).choices
    assert choice.finish_reason == "tool_calls"
    assert all(isinstance(call.function.parsed_arguments, Shape) for call in choice.message.tool_calls)
    with client.chat.completions.stream(**forced) as stream:
        (choice,) = stream.get_final_completion().choices
    assert all(isinstance(call.function.parsed_arguments, Shape) for call in choice.message.tool_calls)


def check_instructor(client: Any) -> None:
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        asked = instructor.from_openai(client, mode=mode).chat.completions.create
        assert isinstance(asked(messages=QUESTION, response_model=Shape, max_retries=0, **OPTIONS), Shape)


def check_langchain(_: Any, url: str) -> None:
    model = langchain.ChatOpenAI(base_url=f"{url}/openai/v1", api_key="none", **OPTIONS)
    for method in ("json_schema", "function_calling"):
        assert isinstance(model.with_structured_output(Shape, method=method).invoke("Which shape?"), Shape)
    bound: Any = model.bind_tools([Shape], tool_choice="any")
    reply = bound.invoke("Which shape?")
    assert all(Shape(**call["args"]) for call in reply.tool_calls)
    assert reply.tool_calls
    streamed: Any = sum(bound.stream("Which shape?"), start=messages.AIMessageChunk(content=""))
    assert all(Shape(**call["args"]) for call in streamed.tool_calls)
    results = [messages.ToolMessage(content="seen", tool_call_id=call["id"]) for call in reply.tool_calls]
    assert model.invoke([messages.HumanMessage("Which shape?"), reply, *results]).content


def check_litellm(_: Any, url: str) -> None:
    options = {**OPTIONS, "model": "openai/talker", "api_base": f"{url}/openai/v1", "api_key": "none"}
    answer = litellm.completion(messages=QUESTION, response_format=Shape, **options)
    assert Shape(**json.loads(answer.choices[0].message.content))
    answer = litellm.completion(messages=QUESTION, tools=[TOOL], tool_choice="required", **options)
    assert all(Shape(**json.loads(call.function.arguments)) for call in answer.choices[0].message.tool_calls)


if __name__ == "__main__":
    run(globals(), openai.OpenAI(base_url=f"{sys.argv[1]}/openai/v1", api_key="none", max_retries=0), sys.argv[1])
