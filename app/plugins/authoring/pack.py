"""``charioteer pack`` and ``charioteer manifest``."""

import gzip
import hashlib
import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, cast

import msgspec
import yaml
from cyclopts import Parameter
from cyclopts.types import ExistingDirectory
from rich.filesize import decimal

from app.core.cli.terminal import console, counted, printable, table
from app.core.runtimes.folder import is_hidden
from app.core.settings.files import READABLE_BY_ALL, replacing_file
from app.core.settings.model import SETTINGS_FILE, ModelError, ModelSource, read_json_file
from app.core.settings.server import ModelOptions
from app.plugins.authoring.check import check
from metadata.model import ModelMetadata

_SUFFIX = ".tar.gz"
_PICKLED = (".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth")
_PICKLE_STARTS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_ZIP_START = b"PK\x03\x04"
_COMPRESSION_LEVEL = 6


def pack(
    directory: Annotated[ExistingDirectory, Parameter(help="A model's folder, or a repository of them.")],
    *,
    output: Annotated[Path, Parameter(help="The archive to write, a .tar.gz.")],
    allow_code: Annotated[bool, Parameter(env_var="CHARIOTEER_ALLOW_CODE", negative="")] = False,
) -> None:
    """Check a model and pack its folder into a .tar.gz for platforms.

    The same files always give the same archive bytes. Nothing is written when the check fails. The last lines are what
    Chariot's catalogue asks: type, task, labels with their numbers, and the licence that the model states, or null.

    Args:
        directory: Folder to pack.
        output: Archive to write.
        allow_code: Whether to allow models that are Python classes. Their code then runs here.
    """
    from app.core.assembly.models import describe, find_models

    if not output.name.endswith(_SUFFIX):
        raise ModelError(f"{output}: Expected a name that ends in {_SUFFIX}")
    if not output.parent.is_dir():
        raise ModelError(f"{output}: There is no folder {output.parent}")
    if output.resolve().is_relative_to(directory.resolve()):
        raise ModelError(f"{output} is inside the packed folder; write it somewhere else")
    packed, left_out = members(directory)
    check(directory, allow_code=allow_code)
    name = _name_of_folder(directory)
    settings = _named_settings(directory, name) if name else None
    digest = archive(directory, packed, output, settings)

    terminal = console()
    files = table("file", "bytes", title=str(output))
    files.columns[1].justify = "right"
    for file in packed:
        files.add_row(printable(file), str((directory / file).stat().st_size))
    terminal.print(files)
    if left_out:
        terminal.print(f"Left out: {printable(', '.join(map(str, left_out)))}.", soft_wrap=True)
    total = sum((directory / file).stat().st_size for file in packed)
    count = counted(len(packed), "file")
    terminal.print(f"{count}, {decimal(total)}, in {decimal(output.stat().st_size)}; sha256 {digest}", soft_wrap=True)
    if name and settings is not None:
        terminal.print(f"{SETTINGS_FILE} in the archive names the model {printable(name)}.", soft_wrap=True)
    elif name:
        terminal.print(
            f"The model is named after its folder, and would be called models in /mnt/models; [yellow]set name in "
            f"{SETTINGS_FILE}[/yellow] to give it a name of its own.",
            soft_wrap=True,
        )
    for source in find_models(ModelOptions(model_dir=directory, allow_code=allow_code)):
        entry = msgspec.json.encode(_catalogue_entry(source, describe(source))).decode()
        terminal.print(f"For Chariot's catalogue, {printable(source.name)}: {printable(entry)}", soft_wrap=True)


def _catalogue_entry(source: ModelSource, metadata: ModelMetadata) -> dict[str, object]:
    """Return what Chariot's catalogue asks: docs/chariot_deployment.md#3-register-the-engine names the sources."""
    return {
        "artifact_type": "custom-engine",
        "task_type": str(metadata.task_type),
        "class_labels": {label: number for number, label in enumerate(metadata.labels)},
        "license": metadata.properties.get("license") or _licence_of_card(source.folder / "README.md"),
    }


def _licence_of_card(file: Path) -> object:
    """Return the licence in a Hugging Face model card, whose YAML is between two lines of dashes; None without one."""
    if not file.is_file():
        return None
    start, _, rest = file.read_text(errors="replace").partition("---\n")
    try:
        card: object = None if start else yaml.safe_load(rest.partition("\n---")[0])
    except yaml.YAMLError:
        return None
    return cast("dict[str, object]", card).get("license") if isinstance(card, dict) else None


def members(directory: Path) -> tuple[Sequence[PurePosixPath], Sequence[PurePosixPath]]:
    """Return the files below `directory` to pack, and the files and folders to leave out, both sorted.

    Hidden files and Python caches are left out. A link to a file in the same folder counts as that file. Raise
    ModelError for links that lead out of the folder or to folders, special files, and pickles.
    """
    packed: list[PurePosixPath] = []
    left_out: list[PurePosixPath] = []
    root = directory.resolve()
    pending = [root]
    while pending:
        for path in pending.pop().iterdir():
            relative_path = PurePosixPath(path.relative_to(root))
            if is_hidden(path.name):
                left_out.append(relative_path)
            elif path.is_symlink() and not (path.is_file() and path.resolve().is_relative_to(root)):
                raise ModelError(
                    f"{directory / relative_path} is a link to {path.readlink()}; expected files of this folder"
                )
            elif path.is_dir():
                pending.append(path)
            elif not path.is_file():
                raise ModelError(f"{directory / relative_path} is neither a file nor a folder")
            elif _is_pickle(path):
                raise ModelError(
                    f"{directory / relative_path} is a pickle, which runs code when it is read; export the model"
                )
            else:
                packed.append(relative_path)
    return sorted(packed), sorted(left_out)


def archive(directory: Path, packed: Sequence[PurePosixPath], output: Path, settings: bytes | None = None) -> str:
    """Write `packed` files below `directory` to the archive `output` in one step, and return the archive's SHA-256.

    The archive has `settings`, if given, as its settings file. Owners, times and modes are fixed, so that the archive
    is reproducible. It has no entries for folders.
    """
    with (
        replacing_file(output, READABLE_BY_ALL) as file,
        gzip.GzipFile("", "wb", _COMPRESSION_LEVEL, file, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        settings_file = PurePosixPath(SETTINGS_FILE)
        for name in packed if settings is None else sorted({*packed, settings_file}):
            if name == settings_file and settings is not None:
                tar.addfile(_entry(name, len(settings)), io.BytesIO(settings))
                continue
            with (directory / name).open("rb") as content:
                tar.addfile(_entry(name, os.fstat(content.fileno()).st_size), content)
    with output.open("rb") as written:
        return hashlib.file_digest(written, "sha256").hexdigest()


def _entry(name: PurePosixPath, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(str(name))
    entry.size = size
    entry.mode = stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH
    return entry


def _is_pickle(path: Path) -> bool:
    """Return whether a file is a pickle, by its suffix or content, or a zip of one, as ``torch.save`` writes."""
    if path.suffix.lower() in _PICKLED:
        return True
    with path.open("rb") as file:
        start = file.read(4)
        if start.startswith(_PICKLE_STARTS):
            # Every pickle ends with this opcode.
            file.seek(-1, io.SEEK_END)
            return file.read() == b"."
        if start != _ZIP_START:
            return False
        try:
            return any(name.endswith(".pkl") for name in zipfile.ZipFile(file).namelist())
        except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError):
            return False


def _name_of_folder(directory: Path) -> str | None:
    """Return the name of a model that is named after its folder; None for a model with a name, and for a repository."""
    from app.core.assembly.discovery import model_at

    try:
        return next((source.name for source in model_at(directory) if source.settings.name is None), None)
    except ModelError:
        # A repository: its models are named after their folders in the archive.
        return None


def _named_settings(directory: Path, name: str) -> bytes | None:
    """Return the settings of a model with its name; None if a manifest or a version has its own file of them."""
    from app.core.assembly.manifest import MANIFEST_FILE

    file = directory / SETTINGS_FILE
    if (directory / MANIFEST_FILE).exists() or any(directory.glob(f"*/{SETTINGS_FILE}")):
        return None
    settings = read_json_file(file, dict[str, object]) if file.is_file() else {}
    return msgspec.json.format(msgspec.json.encode({**settings, "name": name}), indent=2) + b"\n"


def manifest(directory: ExistingDirectory) -> None:
    """Write model.sha256 into a model's folder: the SHA-256 of every file, of all versions, in the format of sha256sum.

    From then on, a server loads the model only if its files match the list. `charioteer check` checks the same.

    Args:
        directory: The model's folder; for a model with versions, the folder above them.
    """
    from app.core.assembly.manifest import MANIFEST_FILE, SIGNATURE_FILE

    count = write_manifest(directory)
    terminal = console()
    terminal.print(f"Wrote {directory / MANIFEST_FILE}: {counted(count, 'file')}", markup=False, soft_wrap=True)
    if (directory / SIGNATURE_FILE).exists():
        advice = "is outdated; sign the new list"
        terminal.print(f"{directory / SIGNATURE_FILE} {advice}", markup=False, soft_wrap=True)


def write_manifest(folder: Path) -> int:
    """Write the manifest of the files below `folder` in one step, and return the number of files.

    Raise ModelError for files that a model may not have, and for names that a manifest cannot hold. Raise OSError when
    a file cannot be read, or the manifest cannot be written.
    """
    from app.core.assembly.manifest import MANIFEST_FILE, manifest_files

    lines: list[str] = []
    for model_file in manifest_files(ModelSource(name=folder.name, version="1", folder=folder)):
        if not str(model_file.relative_path).isprintable() or "\\" in str(model_file.relative_path):
            raise ModelError(f"{str(model_file.path)!r} has characters in its name that a list cannot hold")
        with model_file.path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {model_file.relative_path}\n")
    if not lines:
        raise ModelError(f"{folder} holds no files to list")
    with replacing_file(folder / MANIFEST_FILE, READABLE_BY_ALL) as file:
        file.write("".join(lines).encode())
    return len(lines)
