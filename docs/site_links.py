"""Replace links to files outside `docs`, which the site does not contain, by the names of the files."""

import posixpath
import re
from typing import Any

__all__ = ("on_page_markdown",)

_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>\.\./[^)\s#]+)[^)\s]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the Markdown of a page for the site; MkDocs calls this hook by its name."""
    return _LINK.sub(_named, markdown)


def _named(link: re.Match[str]) -> str:
    path = posixpath.normpath(posixpath.join("docs", link["target"]))
    return link["text"] if link["text"] in (path, f"`{path}`") else f"{link['text']} (`{path}`)"
