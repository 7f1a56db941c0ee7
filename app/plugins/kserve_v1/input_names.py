"""Names of task inputs in protocols whose clients name them."""

from collections.abc import Mapping, Sequence

from app.core.engine.models.servable import Servable
from tasks.text.request import TEXT_INPUT
from tasks.vision.request import IMAGE_INPUT

INPUT_ALIASES: Mapping[str, Sequence[str]] = {
    IMAGE_INPUT.name: ("image_bytes", "data"),
    TEXT_INPUT.name: ("text", "prompt", "question"),
}
"""Alternative names that clients use, by the name that a task declares."""

PROMPTS = "prompts"
"""The parameter with the prompts for an image."""

PROMPT_NAMES = ("prompt", PROMPTS, "question", "text")
"""Names for prompts that are a field beside an image."""


def takes_prompts(servable: Servable) -> bool:
    """Return whether the model accepts prompts for its inputs."""
    return PROMPTS in servable.parameters_type.__struct_fields__
