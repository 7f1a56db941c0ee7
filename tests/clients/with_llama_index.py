"""Get structured answers with llama-index, from a model with random weights."""

import importlib
import sys
from typing import Any

import pydantic

from tests.clients.checks import run

like: Any = importlib.import_module("llama_index.llms.openai_like")
core: Any = importlib.import_module("llama_index.core")


class Shape(pydantic.BaseModel):
    """A shape in an image."""

    color: str = pydantic.Field(pattern="^(red|blue)$")
    count: int = pydantic.Field(ge=0, le=9)


def check_structured_predictions(url: str) -> None:
    model = like.OpenAILike(
        model="talker",
        api_base=f"{url}/openai/v1",
        api_key="none",
        is_chat_model=True,
        is_function_calling_model=True,
        temperature=1.0,
        max_tokens=600,
    )
    prompt = core.PromptTemplate("Which shape do you see?")
    assert isinstance(model.structured_predict(Shape, prompt), Shape)


if __name__ == "__main__":
    run(globals(), sys.argv[1])
