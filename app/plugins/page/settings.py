"""Options of `serve` for the page."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter

from app.core.settings.environment import environment


@Parameter(name="*", group=Group("Page", sort_key=8))
@dataclass(frozen=True, kw_only=True)
class PageSettings:
    """The web page."""

    page: Annotated[bool | None, environment("CHARIOTEER_PAGE", show=True)] = None
    """Whether to serve the web page at /; by default only if the server listens on a loopback address."""
