"""The list of models as OpenAI's clients read it, which KServe V1 shares: both use the path ``/v1/models``."""

import time
from collections.abc import Sequence

import msgspec

from app.engine.engine import Engine

__all__ = ("WireModel", "text_models")

_STARTED = int(time.time())


class WireModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model.

    Attributes:
        id: its name.
        object: always "model".
        created: when the server started, in seconds since 1970.
        owned_by: always "charioteer".
    """

    id: str
    object: str = "model"
    created: int = _STARTED
    owned_by: str = "charioteer"


def text_models(engine: Engine) -> Sequence[WireModel]:
    """Return the ready models that answer with text, by name."""
    names = {
        registration.source.name
        for registration in engine.registry.registrations
        if registration.servable is not None and registration.servable.description.task_type.returns == "texts"
    }
    return [WireModel(id=name) for name in sorted(names)]
