"""``charioteer pack``."""

import gzip
import hashlib
import io
import os
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, BinaryIO

from cyclopts import Parameter
from cyclopts.types import ExistingDirectory
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from app.cli.check import check
from app.cli.terminal import console
from app.settings.model import SETTINGS_FILE, ModelError

__all__ = ("archive", "members", "pack")

_SUFFIX = ".tar.gz"
_PICKLED = (".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth")
_PICKLE_STARTS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_ZIP_START = b"PK\x03\x04"
_LEVEL = 6


def pack(
    directory: Annotated[ExistingDirectory, Parameter(help="A model's folder, or a repository of them.")],
    *,
    output: Annotated[Path, Parameter(help="The archive to write, a .tar.gz.")],
    allow_code: Annotated[bool, Parameter(env_var="CHARIOTEER_ALLOW_CODE", negative="")] = False,
) -> None:
    """Check a model, and put its folder into the .tar.gz that platforms take.

    The same files make the same archive, whoever packs them and when. Nothing is written when the check fails.

    Args:
        directory: what to pack.
        output: where to.
        allow_code: Whether models may be Python classes, whose code then runs here.
    """
    if not output.name.endswith(_SUFFIX):
        raise ModelError(f"{output}: Expected a name that ends in {_SUFFIX}")
    if not output.parent.is_dir():
        raise ModelError(f"{output}: There is no folder {output.parent}")
    if output.resolve().is_relative_to(directory.resolve()):
        raise ModelError(f"{output} lies in the folder that is packed; write it somewhere else")
    packed, left_out = members(directory)
    check(directory, allow_code=allow_code)
    digest = archive(directory, packed, output)

    printed = console()
    table = Table("file", "bytes", title=escape(str(output)), title_justify="left")
    table.columns[1].justify = "right"
    for each in packed:
        table.add_row(escape(str(each)), str((directory / each).stat().st_size))
    printed.print(table)
    if left_out:
        printed.print(f"Left out: {escape(', '.join(map(str, left_out)))}.", soft_wrap=True)
    total = sum((directory / each).stat().st_size for each in packed)
    count = "1 file" if len(packed) == 1 else f"{len(packed)} files"
    printed.print(f"{count}, {decimal(total)}, in {decimal(output.stat().st_size)}; sha256 {digest}", soft_wrap=True)
    if _named_by_its_folder(directory):
        printed.print(
            f"Its name is its folder's, so that it is called models in /mnt/models; [yellow]declare name in "
            f"{SETTINGS_FILE}[/yellow] if it shall have one of its own.",
            soft_wrap=True,
        )


def members(directory: Path) -> tuple[Sequence[PurePosixPath], Sequence[PurePosixPath]]:
    """The files below `directory` that are packed, and the files and folders that are left out, sorted.

    Left out is what is hidden, and Python's caches. A link to a file of the same folder counts as that file.

    Raises:
        ModelError: for links that lead out of the folder or to folders, what is no file, and pickles.
    """
    packed: list[PurePosixPath] = []
    left_out: list[PurePosixPath] = []
    root = directory.resolve()
    pending = [root]
    while pending:
        for path in pending.pop().iterdir():
            place = PurePosixPath(path.relative_to(root))
            if path.name.startswith(".") or path.name == "__pycache__":
                left_out.append(place)
            elif path.is_symlink() and not (path.is_file() and path.resolve().is_relative_to(root)):
                raise ModelError(f"{directory / place} is a link to {path.readlink()}; expected files of this folder")
            elif path.is_dir():
                pending.append(path)
            elif not path.is_file():
                raise ModelError(f"{directory / place} is neither a file nor a folder")
            elif _is_pickle(path):
                raise ModelError(f"{directory / place} is a pickle, which runs code when it is read; export the model")
            else:
                packed.append(place)
    return sorted(packed), sorted(left_out)


def archive(directory: Path, packed: Sequence[PurePosixPath], output: Path) -> str:
    """Write the files called `packed` below `directory` to `output`, whole or not at all: its SHA-256.

    Owners, times and modes are not those of the files. Folders are left to the names of the files in them.
    """
    with tempfile.NamedTemporaryFile(dir=output.parent, prefix=f".{output.name}.", delete=False) as file:
        try:
            with (
                gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as zipped,
                tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
            ):
                for each in packed:
                    with (directory / each).open("rb") as content:
                        tar.addfile(_entry(each, content), content)
            Path(file.name).chmod(0o644)
            Path(file.name).replace(output)
        except BaseException:
            Path(file.name).unlink()
            raise
    with output.open("rb") as written:
        return hashlib.file_digest(written, "sha256").hexdigest()


def _entry(name: PurePosixPath, content: BinaryIO) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(str(name))
    entry.size = os.fstat(content.fileno()).st_size
    entry.mode = stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH
    return entry


def _is_pickle(path: Path) -> bool:
    """By its name, or by its content: a bare pickle, or a zip archive of one as ``torch.save`` writes."""
    if path.suffix.lower() in _PICKLED:
        return True
    with path.open("rb") as file:
        start = file.read(4)
        if start != _ZIP_START:
            return start.startswith(_PICKLE_STARTS) and _ends_with_stop(file)
        try:
            return any(name.endswith(".pkl") for name in zipfile.ZipFile(file).namelist())
        except zipfile.BadZipFile:
            return False


def _ends_with_stop(file: BinaryIO) -> bool:
    """Whether the last byte is the opcode that ends every pickle."""
    file.seek(-1, io.SEEK_END)
    return file.read() == b"."


def _named_by_its_folder(directory: Path) -> bool:
    from app.assembly.discovery import model_at

    try:
        return any(each.settings.name is None for each in model_at(directory))
    except ModelError:
        # A repository, whose models are named by folders of the archive.
        return False
