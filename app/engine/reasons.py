"""What senders are told of a model that cannot answer: what is wrong with it, and not where the server keeps it."""

import re
from pathlib import Path

from app.settings.model import ModelSource

__all__ = ("told", "without_paths")

_ABSOLUTE = re.compile(r"""(?<![\w.~:/-])/(?:[^\s/'"<>|:;,()\[\]{}]+/)+""")
"""The folders of an absolute path, which is all of it but the last name. Neither of a URL nor of a relative path."""


def without_paths(reason: str, source: ModelSource) -> str:
    """`reason` with the names of files instead of their paths.

    Args:
        reason: as the log has it.
        source: of the model, whose folder may have spaces in its path.
    """
    folders: dict[str, str] = {}
    for folder in (source.folder, source.folder.absolute(), source.folder.resolve()):
        for each in (folder, folder.parent):
            if each != each.parent:
                folders[str(each)] = each.name
    for path in sorted(folders, key=len, reverse=True):
        reason = re.sub(rf"(?<![^\s'\"(:]){re.escape(path)}(/|(?![\w.-]))", lambda found: _left(found, folders), reason)
    return _ABSOLUTE.sub("", reason)


def told(error: BaseException) -> str:
    """What an exception says, or its type where it says nothing, as `MemoryError` does."""
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001  a `__str__` of a model's own may fail as well
        return type(error).__name__


def _left(found: re.Match[str], folders: dict[str, str]) -> str:
    """What stands in a folder goes by its own name, the folder by its."""
    return "" if found[1] else folders[str(Path(found[0]))]
