"""Options of commands, and settings of one model."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter
from msgspec import Struct


@Parameter(name="*", group=Group("Acme", sort_key=20))
@dataclass(frozen=True, kw_only=True)
class AcmeSettings:
    """Greetings."""

    acme_greeting: Annotated[str, Parameter(env_var="ACME_GREETING", show=True)] = "Hello"
    """Word that GET /acme answers."""


@Parameter(name="*", group=Group("Acme", sort_key=20))
@dataclass(frozen=True, kw_only=True)
class AcmeModelOptions:
    """Models of Acme."""

    acme_language: Annotated[str, Parameter(env_var="ACME_LANGUAGE")] = "en"
    """Language of their classes."""


class AcmeModelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The object "acme" in model-settings.json."""

    licence: str | None = None
