"""Under which names the inputs of tasks are known, in protocols whose senders name them."""

from collections.abc import Mapping, Sequence

import msgspec

from app.engine.servable import Servable
from tasks.text.request import TEXT_INPUT
from tasks.vision.request import IMAGE_INPUT

__all__ = ("OTHER_NAMES", "PROMPTS", "PROMPT_NAMES", "takes_prompts")

OTHER_NAMES: Mapping[str, Sequence[str]] = {
    IMAGE_INPUT.name: ("image_bytes", "data"),
    TEXT_INPUT.name: ("text", "prompt", "question"),
}
"""By the name that a task declares, the others that clients use."""

PROMPTS = "prompts"
"""The parameter that holds what is asked about an image."""

PROMPT_NAMES = ("prompt", PROMPTS, "question", "text")
"""What prompts are called where they stand beside an image."""


def takes_prompts(servable: Servable) -> bool:
    """Whether the model can be asked something about each of its inputs."""
    return any(field.name == PROMPTS for field in msgspec.structs.fields(servable.parameters_type))
