"""Error texts: for clients without the paths of the server's files, for terminals, and for missing extras."""

import re
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager

from app.core.settings.model import ModelSource

_ABSOLUTE = re.compile(r"""(?<![\w.~:/-])/(?:[^\s/'"<>|:;,()\[\]{}]+/)+""")
"""The folders of an absolute path, without its last name. URLs and relative paths do not match."""

_HARMLESS = "\n\xa0\u200c\u200d"
"""Line ends, spaces and joiners, which are not printable for `str.isprintable`."""

_MAX_CHARACTERS = 4096
"""Characters of an exception's message that clients get: a model may put whole arrays into it."""

_MAX_CHOICES = 10
"""Maximum number of names in an error; a repository may have hundreds of models."""


def printable_text(value: object) -> str:
    """Return the text of a value for a terminal, with control characters as visible escapes."""
    return "".join(
        character if character.isprintable() or character in _HARMLESS else repr(character)[1:-1]
        for character in str(value)
    )


def list_choices(choices: Iterable[str]) -> str:
    """Return the names to choose from, for an error: at most ten, and the number of the others."""
    names = tuple(choices)
    more = len(names) - _MAX_CHOICES
    listed = ", ".join(names[:_MAX_CHOICES]) or "no models"
    return f"{listed} and {more} more" if more > 0 else listed


def redact_paths(reason: str, source: ModelSource) -> str:
    """Replace the paths of files in `reason` with their names. The folder of `source` may have spaces in its path."""
    folders: dict[str, str] = {}
    for model_folder in (source.folder, source.folder.absolute(), source.folder.resolve()):
        for folder in (model_folder, model_folder.parent):
            if folder != folder.parent:
                folders[str(folder)] = folder.name
    for path in sorted(folders, key=len, reverse=True):
        # Remove the folders before a file name; a folder that stands alone keeps its name.
        reason = re.sub(rf"(?<![^\s'\"(:]){re.escape(path)}/", "", reason)
        reason = re.sub(rf"(?<![^\s'\"(:]){re.escape(path)}(?![\w.-])", lambda _: folders[path], reason)  # noqa: B023
    return _ABSOLUTE.sub("", reason)


def error_text(error: BaseException) -> str:
    """Return the start of the message of an exception, or its type if that is empty, as for `MemoryError`."""
    try:
        text = str(error) or type(error).__name__
    except Exception:  # noqa: BLE001  a model's own `__str__` may fail too
        return type(error).__name__
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]} ..."


def sentence_of(error: object) -> str:
    """Return what a person reads of an exception: of an `OSError`, its file and the reason."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename} cannot be used: {error.strerror}"


def is_ctrl_c(error: BaseException) -> bool:
    """Return whether an error is a Ctrl-C, which ends a command. Models of a server run in other threads."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def missing_extra(feature: str, extra: str, error: ImportError) -> str:
    """Return the message that names the extra to install for a feature, such as an option or a command."""
    return f"{feature} needs the extra {extra}, pip install 'charioteer[{extra}]' ({error})"


@contextmanager
def needs_extra(feature: str, extra: str, error_type: type[Exception]) -> Generator[None]:
    """While entered, turn a failed import into an `error_type` with the message of `missing_extra`."""
    try:
        yield
    except ImportError as error:
        raise error_type(missing_extra(feature, extra, error)) from None
