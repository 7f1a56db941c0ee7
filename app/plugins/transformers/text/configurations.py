"""Check the configuration files of a model's folder before transformers reads them."""

from pathlib import Path
from typing import cast

from app.core.settings.model import ModelError
from app.plugins.transformers.hugging_face.files import read_json

_WITH_CODE = (
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer_config.json",
    "video_preprocessor_config.json",
)
_IMPLEMENTATIONS = ("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation")
_MAX_DEPTH = 32


def check_configurations(folder: Path) -> None:
    """Reject configurations that refer to code.

    Raise ModelError for Python code of the model or of a hub, and for a file that is not valid JSON.
    """
    for name in _WITH_CODE:
        _check_code(folder / name, read_json(dict[str, object], folder / name), 0)


def _check_code(path: Path, value: object, depth: int) -> None:
    """Reject references to code anywhere in a configuration, including nested ones."""
    if depth > _MAX_DEPTH:
        raise ModelError(f"{path} is nested deeper than {_MAX_DEPTH} levels")
    match value:
        case dict():
            fields = cast("dict[str, object]", value)
            if fields.get("auto_map"):
                raise ModelError(f"{path} refers to Python code of the model (auto_map), which is not run")
            for name in _IMPLEMENTATIONS:
                # A name with a slash is a repository on a hub that contains compiled code.
                if "/" in str(fields.get(name)):
                    raise ModelError(f"{path} refers to code on a hub ({name}), which is not run")
            for field in fields.values():
                _check_code(path, field, depth + 1)
        case list():
            for element in cast("list[object]", value):
                _check_code(path, element, depth + 1)
        case _:
            pass
