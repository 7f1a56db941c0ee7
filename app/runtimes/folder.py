"""The files of a model's folder, looked at before anything reads them: what they are, and where links lead.

A folder of a model may itself be a link, which its operator made. What lies in it may come from anybody: a link in it
is followed only to files of the same folder, to the stores that keep such folders' files for them (blobs of the Hugging
Face cache, git-annex, DVC), and to where the operator says. What cannot be reached, as lost+found or a link to nothing,
is passed over: the model's framework cannot read it either.
"""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from app.settings.model import LARGEST_JSON, SETTINGS_FILE, ModelError, ModelSource

__all__ = (
    "ModelFile",
    "check_folder",
    "confined",
    "confined_to",
    "files_of",
    "identity_of",
    "is_hidden",
    "is_lone",
)

_STORES = (".git/annex/objects", ".dvc/cache")
"""Where git-annex and DVC keep the files of the folders below, whose places links take."""
_MOST_LINKS = 40
_MOST_ENTRIES = 100_000
_DEEPEST = 32
_LARGEST_TOKENIZER = 256 * 1024 * 1024
_JSON_FILES = (
    SETTINGS_FILE,
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
    "generation_config.json",
    "model.safetensors.index.json",
    "preprocessor_config.json",
    "processor_config.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
    "video_preprocessor_config.json",
)
_LARGEST: Mapping[str, int] = {**dict.fromkeys(_JSON_FILES, LARGEST_JSON), "tokenizer.json": _LARGEST_TOKENIZER}
"""Bytes of files that are read whole, by their names."""
_READ = (".jinja", ".json", ".npz", ".onnx", ".py", ".safetensors", ".sha256", ".sig", ".so", ".txt")
_BESIDE_A_GRAPH = (SETTINGS_FILE, "config.json", "preprocessor_config.json")


class ModelFile(msgspec.Struct, frozen=True, order=True):
    """A regular file of a model, links followed.

    Attributes:
        place: below the model's own folder.
        path: where it is opened.
        identity: device, inode, bytes, and the nanoseconds of its last changes: others when it is another file.
    """

    place: PurePosixPath
    path: Path
    identity: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return self.identity[2]


def is_hidden(name: str) -> bool:
    """Whether no model's file is looked for under this name."""
    return name.startswith(".") or name == "__pycache__"


def identity_of(status: os.stat_result) -> tuple[int, ...]:
    """Of a file: another one when it was replaced, or written to."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def is_lone(source: ModelSource) -> bool:
    """Whether the model is one graph that was named by its path: what else lies in that folder may be anybody's."""
    return source.file is not None and source.settings.uri is None and source.file.suffix.lower() == ".onnx"


def check_folder(source: ModelSource) -> None:
    """Refuse files that lead out of the model's folder, would never end, or are too large to be read whole.

    Raises:
        ModelError: naming the first of them.
    """
    if not is_lone(source):
        for _ in files_of(source):
            pass
        return
    # The file itself was named by whoever runs this, and may be a link to anywhere, as a folder may.
    for path in (source.folder / name for name in _BESIDE_A_GRAPH):
        if path.exists():
            confined(path, source)
            _file(path, PurePosixPath(path.name), path.stat())


def files_of(source: ModelSource, *, nothing_else: bool = False) -> Iterator[ModelFile]:
    """Every file of a model in the order of their names, those of hidden entries and Python's caches left out.

    Of a model with versions they are those of the version, and those that lie beside the versions' folders.

    Args:
        source: the model.
        nothing_else: whether pipes, sockets and devices are refused under any name; else a Python class may have some,
            under names that no runtime reads.

    Raises:
        ModelError: for links that lead elsewhere or round in a circle, what is neither file nor folder, files that are
            too large to be read whole, and folders of too many entries.
    """
    walk = _Walk(_allowed_roots(source), nothing_else=nothing_else)
    if source.root is None:
        yield from walk.below(source.folder, PurePosixPath(), ())
        return
    yield from walk.directly_in(source.root)
    yield from walk.below(source.folder, PurePosixPath(source.folder.name), ())


def confined(path: Path, source: ModelSource) -> Path:
    """`path` with its links followed.

    Raises:
        ModelError: when it leads out of the model's folder.
    """
    return confined_to(_allowed_roots(source), path)


def _allowed_roots(source: ModelSource) -> Sequence[Path]:
    """The folders that a model's files may lie in: as they are called, and with links followed."""
    own = [source.folder, *([source.root] if source.root is not None else ())]
    resolved = [each.resolve() for each in own]
    return [*own, *resolved, *_stores(source.folder.resolve()), *(each.resolve() for each in source.links)]


def _stores(folder: Path) -> Iterator[Path]:
    """Those that tools keep the folder's files in, each a folder itself and no link to one."""
    for above in (folder, *folder.parents):
        beside = [above.parent.parent / "blobs"] if above.parent.name == "snapshots" else []
        for each in (*beside, *(above / store for store in _STORES)):
            if each.is_dir() and each.resolve() == each:
                yield each


def confined_to(roots: Sequence[Path], path: Path) -> Path:
    """`path` with its links followed.

    Raises:
        ModelError: when it leads out of all of `roots`.
    """
    for root in roots:
        if path.is_relative_to(root) and (stays := _staying(path, root)) is not None:
            return stays
    try:
        found = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "Its links go round in a circle"
        raise ModelError(f"{path} cannot be read: {reason}") from None
    if not any(found.is_relative_to(root) for root in roots):
        raise ModelError(
            f"{path} leads out of the model's folder, to {found}; put a copy there instead of the link, "
            "or name a folder that links may lead to with --model-links"
        )
    return found


def _staying(path: Path, root: Path) -> Path | None:
    """`path` with its links followed, as long as each says its way from where it is, and none leaves `root`.

    The way to `root` itself is left as it is called: that into another process's files (/proc/PID/root, where KServe
    has the models of OCI images) only that process could spell out.
    """
    at, pending, links = root, [*reversed(path.relative_to(root).parts)], 0
    while pending:
        part = pending.pop()
        if part == "..":
            if at == root:
                return None
            at = at.parent
        elif (at / part).is_symlink():
            links += 1
            target = (at / part).readlink()
            if target.is_absolute() or links > _MOST_LINKS:
                return None
            pending.extend(reversed(target.parts))
        else:
            at = at / part
    return at if at.exists() else None


class _Walk:
    """One look through a folder."""

    def __init__(self, roots: Sequence[Path], *, nothing_else: bool) -> None:
        self._roots = roots
        self._nothing_else = nothing_else
        self._seen = 0

    def below(self, folder: Path, place: PurePosixPath, above: tuple[Path, ...]) -> Iterator[ModelFile]:
        resolved = folder.resolve()
        if resolved in above:
            raise ModelError(f"{folder} is a link that leads round in a circle")
        if len(above) > _DEEPEST:
            raise ModelError(f"{folder} lies deeper than {_DEEPEST} folders")
        for path, status in self._entries(folder):
            if stat.S_ISDIR(status.st_mode):
                yield from self.below(path, place / path.name, (*above, resolved))
            elif self._counts(path, status):
                yield _file(path, place / path.name, status)

    def directly_in(self, folder: Path) -> Iterator[ModelFile]:
        for path, status in self._entries(folder, links_of_folders=False):
            if not stat.S_ISDIR(status.st_mode) and self._counts(path, status):
                yield _file(path, PurePosixPath(path.name), status)

    def _counts(self, path: Path, status: os.stat_result) -> bool:
        return stat.S_ISREG(status.st_mode) or self._nothing_else or path.suffix.lower() in _READ

    def _entries(self, folder: Path, *, links_of_folders: bool = True) -> Iterator[tuple[Path, os.stat_result]]:
        for name in self._names(folder):
            path = folder / name
            try:
                is_link, status = path.is_symlink(), path.stat()
            except OSError:
                continue
            if is_link and (links_of_folders or not stat.S_ISDIR(status.st_mode)):
                confined_to(self._roots, path)
            yield path, status

    def _names(self, folder: Path) -> list[str]:
        try:
            names = sorted(each.name for each in folder.iterdir() if not is_hidden(each.name))
        except OSError:
            return []
        self._seen += len(names)
        if self._seen > _MOST_ENTRIES:
            raise ModelError(f"{folder} and what lies beside it are more than {_MOST_ENTRIES:,} files")
        return names


def _file(path: Path, place: PurePosixPath, status: os.stat_result) -> ModelFile:
    if not stat.S_ISREG(status.st_mode):
        raise ModelError(f"{path} is neither a file nor a folder")
    most = _LARGEST.get(place.name)
    if most is not None and status.st_size > most:
        raise ModelError(f"{path} has {status.st_size:,} bytes, more than {most:,}")
    return ModelFile(place, path, identity_of(status))
