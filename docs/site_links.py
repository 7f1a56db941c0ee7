"""Replace links to files outside `docs` by the names of the files, and reject pages that load from other hosts."""

import posixpath
import re
from typing import Any

from mkdocs.exceptions import PluginError

__all__ = ("on_page_markdown", "on_post_page")

_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>\.\./[^)\s#]+)[^)\s]*\)")
_FOREIGN = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=["'](?P<address>(?:https?:)?//[^"']+)""")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the Markdown of a page for the site; MkDocs calls this hook by its name."""
    return _LINK.sub(_named, markdown)


def on_post_page(output: str, **_: Any) -> str:
    """Return a page of the site unchanged; MkDocs calls this hook by its name.

    Raise PluginError if the page loads a file from another host, such as a font of the theme.
    """
    if found := _FOREIGN.search(output):
        raise PluginError(f"the page loads {found['address']}")
    return output


def _named(link: re.Match[str]) -> str:
    path = posixpath.normpath(posixpath.join("docs", link["target"]))
    return link["text"] if link["text"] in (path, f"`{path}`") else f"{link['text']} (`{path}`)"
