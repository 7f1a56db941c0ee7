"""Check OpenAI's Python client and LangChain against a server: ``python -m tests.clients.with_openai URL``."""

import asyncio
import base64
import importlib
import sys
from typing import Any

from tests.clients.checks import SHAPE, raised_error, run

openai: Any = importlib.import_module("openai")
langchain: Any = importlib.import_module("langchain_openai")
core: Any = importlib.import_module("langchain_core.messages")

IMAGE = base64.b64encode(SHAPE).decode()
QUESTION = "What is in the picture?"
MESSAGES = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": QUESTION},
            {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{IMAGE}"}},
        ],
    }
]


def check_models(client: Any, url: str) -> None:
    names = ["embedder", "image-embedder", "vlm"]
    assert [model.id for model in client.models.list()] == names
    assert client.models.retrieve("vlm").owned_by == "charioteer"
    # The path that KServe V1 shares.
    other = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
    assert [model.id for model in other.models.list()] == names
    assert answer_of(other) == answer_of(client)


def answer_of(client: Any, **options: Any) -> str:
    return client.chat.completions.create(model="vlm", messages=MESSAGES, **options).choices[0].message.content


def check_chat(client: Any) -> None:
    completion = client.chat.completions.create(model="vlm", messages=MESSAGES, temperature=0)
    (choice,) = completion.choices
    assert choice.message.content == "a blue star"
    assert choice.finish_reason == "stop"
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens
    assert completion.usage.prompt_tokens > 49
    short = client.chat.completions.create(model="vlm", messages=MESSAGES, max_completion_tokens=2)
    assert (short.choices[0].finish_reason, short.usage.completion_tokens) == ("length", 2)
    assert choice.message.content.startswith(short.choices[0].message.content)
    without_image = [{"role": "user", "content": "what is a shape"}]
    assert client.chat.completions.create(model="vlm", messages=without_image).usage.completion_tokens > 0


def check_seeds_and_stop(client: Any) -> None:
    sampled = [answer_of(client, temperature=2, top_p=0.9, seed=seed) for seed in (1, 1, 2, 3, 4, 5)]
    assert sampled[0] == sampled[1]
    assert len(set(sampled)) > 1
    text = answer_of(client)
    assert answer_of(client, stop=[text[4:9]]) == text[: text.index(text[4:9])]


def check_stream(client: Any) -> None:
    options = {"model": "vlm", "messages": MESSAGES, "stream": True, "stream_options": {"include_usage": True}}
    first, *chunks, last, usage = client.chat.completions.create(**options)
    assert first.choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content for chunk in chunks) == answer_of(client)
    assert last.choices[0].finish_reason == "stop"
    assert (usage.choices, usage.usage.completion_tokens > 1) == ([], True)
    with client.chat.completions.stream(model="vlm", messages=MESSAGES) as stream:
        assert stream.get_final_completion().choices[0].message.content == answer_of(client)


def check_errors(client: Any) -> None:
    create = client.chat.completions.create
    error: Any = raised_error(openai.NotFoundError, create, model="missing", messages=MESSAGES)
    assert (error.code, error.param) == ("model_not_found", "model")
    for model, options, param in (
        ("detector", {}, "model"),
        ("vlm", {"n": 2}, "n"),
        ("vlm", {"logprobs": True}, "logprobs"),
        ("vlm", {"messages": "no list"}, "messages"),
    ):
        error = raised_error(openai.BadRequestError, create, **{"model": model, "messages": MESSAGES, **options})
        assert (error.param, error.type) == (param, "invalid_request_error"), error
        assert error.message
    missing = raised_error(openai.NotFoundError, client.responses.create, model="vlm", input="a")
    assert "use chat completions" in str(missing)


def check_embeddings(client: Any) -> None:
    embed = client.embeddings.create
    texts = ["abba", "cab"]
    expected = [[2.5, 2.5, 0.5], [1.5, 1.5, 1.5]]
    # The client requests base64, and decodes it.
    assert [item.embedding for item in embed(model="embedder", input=texts).data] == expected
    assert embed(model="embedder", input="abba", encoding_format="float", dimensions=3).data[0].embedding == expected[0]
    image = f"data:image/jpeg;base64,{IMAGE}"
    (item,) = embed(model="image-embedder", input=[image]).data
    assert item.embedding == embed(model="image-embedder", input=image, encoding_format="float").data[0].embedding
    for model, options, param in (
        ("vlm", {}, "model"),
        ("embedder", {"input": [[1, 2]]}, "input[0]"),
        ("embedder", {"dimensions": 2}, "dimensions"),
        ("image-embedder", {"input": "https://example.org/a.png"}, "input"),
    ):
        error: Any = raised_error(openai.BadRequestError, embed, **{"model": model, "input": texts, **options})
        assert (error.param, error.type) == (param, "invalid_request_error"), error


def check_concurrent_requests(client: Any, url: str) -> None:
    async def answers() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{url}/openai/v1", api_key="none") as asynchronous:
            create = asynchronous.chat.completions.create
            complete = await asyncio.gather(*(create(model="vlm", messages=MESSAGES) for _ in range(4)))
            stream = await create(model="vlm", messages=MESSAGES, stream=True)
            streamed = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            return [*(completion.choices[0].message.content for completion in complete), streamed]

    assert set(asyncio.run(answers())) == {answer_of(client)}


def check_langchain(client: Any, url: str) -> None:
    model = langchain.ChatOpenAI(
        base_url=f"{url}/openai/v1", api_key="none", model="vlm", temperature=0, max_tokens=50, stream_usage=True
    )
    image = {"type": "image", "base64": IMAGE, "mime_type": "image/jpeg"}
    question = core.HumanMessage(content=[{"type": "text", "text": QUESTION}, image])
    reply = model.invoke([question])
    assert reply.content == answer_of(client)
    assert reply.usage_metadata["input_tokens"] > 49
    chunks = list(model.stream([question]))
    assert "".join(chunk.content for chunk in chunks) == reply.content
    assert sum(chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata) > 1
    follow_up = model.invoke([question, reply, core.HumanMessage(content="What color is the shape?")])
    assert follow_up.usage_metadata["input_tokens"] > reply.usage_metadata["input_tokens"]


if __name__ == "__main__":
    run(globals(), openai.OpenAI(base_url=f"{sys.argv[1]}/openai/v1", api_key="none", max_retries=0), sys.argv[1])
