"""Check the files of a model's folder and the targets of its links before a framework opens them.

The folder itself may be a link, because the operator created it. Its content is untrusted. A link in it may lead only
into the same folder, into known stores (Hugging Face cache, git-annex, DVC), or into folders that the operator allows.
Unreadable entries, such as lost+found or a broken link, are skipped: the framework cannot read them either.
"""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from app.core.settings.model import MAX_JSON_BYTES, SETTINGS_FILE, ModelError, ModelSource

_STORES = (".git/annex/objects", ".dvc/cache")
"""Where git-annex and DVC store the files that links in a model's folder lead to."""
_MAX_LINKS = 40
_MAX_ENTRIES = 100_000
_MAX_DEPTH = 32
_MAX_TOKENIZER_BYTES = 256 * 1024 * 1024
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
_MAX_BYTES: Mapping[str, int] = {**dict.fromkeys(_JSON_FILES, MAX_JSON_BYTES), "tokenizer.json": _MAX_TOKENIZER_BYTES}
"""Maximum size of the files that are read into memory at once, by name."""
_READ_SUFFIXES = (".jinja", ".json", ".npz", ".onnx", ".py", ".safetensors", ".sha256", ".sig", ".so", ".txt")
CONFIGURATION = ("config.json", "preprocessor_config.json", "inference.yml", "infer_cfg.yml", "pipeline.json")
"""Files of a library or exporter beside a graph."""


class ModelFile(msgspec.Struct, frozen=True, order=True):
    """A regular file of a model, with links resolved.

    Attributes:
        relative_path: path relative to the model's folder.
        path: path to open.
        identity: device, inode, size in bytes, and mtime and ctime in nanoseconds; it changes with the content.
    """

    relative_path: PurePosixPath
    path: Path
    identity: tuple[int, ...]


def is_hidden(name: str) -> bool:
    """Return whether entries of this name are ignored."""
    return name.startswith(".") or name == "__pycache__"


def identity_of(status: os.stat_result) -> tuple[int, ...]:
    """Return a key that changes when a file is replaced or written to."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def is_single_file(source: ModelSource) -> bool:
    """Return whether the model is one file named by its path. Other files of that folder may not belong to it."""
    return source.file is not None and source.settings.uri is None and source.file.suffix.lower() in (".onnx", ".py")


def check_folder(source: ModelSource) -> None:
    """Reject links out of the model's folder, pipes and devices, and files that are too large to read into memory.

    Raise ModelError naming the first such file.
    """
    if not is_single_file(source):
        for _ in iterate_files(source):
            pass
        return
    # The operator named the file itself, so it may be a link to anywhere.
    for path in (source.folder / name for name in (SETTINGS_FILE, *CONFIGURATION)):
        if path.exists():
            resolve_confined(path, source)
            _checked_file(path, PurePosixPath(path.name), path.stat())


def iterate_files(source: ModelSource, *, reject_special_files: bool = False) -> Iterator[ModelFile]:
    """Yield the files of a model in order of their names, without hidden entries and Python caches.

    For a model with versions, yield the files of the version and the files beside the version folders. Raise ModelError
    for links out of the folder or in a circle, special files, files that are too large, and folders with too many
    entries.

    Args:
        source: the model.
        reject_special_files: whether to reject pipes, sockets and devices under any name. Otherwise only names with a
            suffix that a runtime reads are rejected, because a Python class may use others.
    """
    walk = _Walk(_allowed_roots(source), reject_special_files=reject_special_files)
    if source.root is None:
        yield from walk.walk(source.folder, PurePosixPath(), ())
        return
    yield from walk.walk(source.root, PurePosixPath(), (), recursive=False)
    yield from walk.walk(source.folder, PurePosixPath(source.folder.name), ())


def resolve_confined(path: Path, source: ModelSource) -> Path:
    """Resolve the links of `path`. Raise a `ModelError` if the path leads out of the model's folder."""
    return resolve_within(_allowed_roots(source), path)


def _allowed_roots(source: ModelSource) -> Sequence[Path]:
    """Return the folders that may contain a model's files, both as given and with links resolved."""
    folders = [source.folder, *([source.root] if source.root is not None else ())]
    return [
        *folders,
        *(folder.resolve() for folder in (*folders, *source.links)),
        *_storage_folders(source.folder.resolve()),
    ]


def _storage_folders(folder: Path) -> Iterator[Path]:
    """Yield the stores of tools for the folder's files. A store must be a real folder and not a link."""
    for parent in (folder, *folder.parents):
        blobs = [parent.parent.parent / "blobs"] if parent.parent.name == "snapshots" else []
        for store in (*blobs, *(parent / name for name in _STORES)):
            if store.is_dir() and store.resolve() == store:
                yield store


def resolve_within(roots: Sequence[Path], path: Path) -> Path:
    """Resolve the links of `path`. Raise a `ModelError` if the path leads out of all `roots`."""
    for root in roots:
        if path.is_relative_to(root) and (inside := _resolve_inside(path, root)) is not None:
            return inside
    try:
        resolved = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "Its links form a loop"
        raise ModelError(f"{path} cannot be read: {reason}") from None
    if not any(resolved.is_relative_to(root) for root in roots):
        raise ModelError(
            f"{path} leads out of the model's folder, to {resolved}; replace the link by a copy, "
            "or allow a folder as the target of links with --model-links"
        )
    return resolved


def _resolve_inside(path: Path, root: Path) -> Path | None:
    """Resolve `path` if all its links are relative and stay inside `root`; otherwise return None.

    The path of `root` itself is not resolved. KServe mounts models of OCI images below /proc/PID/root, and this process
    cannot resolve that path.
    """
    current, pending, links = root, [*reversed(path.relative_to(root).parts)], 0
    while pending:
        part = pending.pop()
        if part == "..":
            if current == root:
                return None
            current = current.parent
        elif (current / part).is_symlink():
            links += 1
            target = (current / part).readlink()
            if target.is_absolute() or links > _MAX_LINKS:
                return None
            pending.extend(reversed(target.parts))
        else:
            current = current / part
    return current if current.exists() else None


class _Walk:
    """One traversal of a folder, which counts the entries."""

    def __init__(self, roots: Sequence[Path], *, reject_special_files: bool) -> None:
        self._roots = roots
        self._reject_special_files = reject_special_files
        self._entry_count = 0

    def walk(
        self, folder: Path, relative_path: PurePosixPath, ancestors: tuple[Path, ...], *, recursive: bool = True
    ) -> Iterator[ModelFile]:
        resolved = folder.resolve()
        if resolved in ancestors:
            raise ModelError(f"{folder} is a link that forms a loop")
        if len(ancestors) > _MAX_DEPTH:
            raise ModelError(f"{folder} is nested deeper than {_MAX_DEPTH} folders")
        for name in self._names(folder):
            path = folder / name
            try:
                is_link, status = path.is_symlink(), path.stat()
            except OSError:
                continue
            is_folder = stat.S_ISDIR(status.st_mode)
            if is_folder and not recursive:
                continue
            if is_link:
                resolve_within(self._roots, path)
            if is_folder:
                yield from self.walk(path, relative_path / name, (*ancestors, resolved))
            elif stat.S_ISREG(status.st_mode) or self._reject_special_files or path.suffix.lower() in _READ_SUFFIXES:
                yield _checked_file(path, relative_path / name, status)

    def _names(self, folder: Path) -> list[str]:
        try:
            names = sorted(entry.name for entry in folder.iterdir() if not is_hidden(entry.name))
        except OSError:
            return []
        self._entry_count += len(names)
        if self._entry_count > _MAX_ENTRIES:
            raise ModelError(f"{folder} and the folders beside it contain more than {_MAX_ENTRIES:,} entries")
        return names


def _checked_file(path: Path, relative_path: PurePosixPath, status: os.stat_result) -> ModelFile:
    if not stat.S_ISREG(status.st_mode):
        raise ModelError(f"{path} is neither a file nor a folder")
    max_bytes = _MAX_BYTES.get(relative_path.name)
    if max_bytes is not None and status.st_size > max_bytes:
        raise ModelError(f"{path} has {status.st_size:,} bytes, more than {max_bytes:,}")
    return ModelFile(relative_path, path, identity_of(status))
