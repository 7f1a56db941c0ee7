"""Options of `serve` and of `check`."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter


@Parameter(name="*", group=Group("Acme", sort_key=20))
@dataclass(frozen=True, kw_only=True)
class AcmeSettings:
    """Greetings."""

    acme_greeting: Annotated[str, Parameter(env_var="ACME_GREETING", show=True)] = "Hello"
    """Word that GET /acme answers."""


@Parameter(name="*", group=Group("Acme", sort_key=20))
@dataclass(frozen=True, kw_only=True)
class AcmeCheckOptions:
    """How `check` shows models of Acme."""

    acme_shout: Annotated[bool, Parameter(negative="")] = False
    """Write classes in capitals."""
