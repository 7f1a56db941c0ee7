"""Write the manifest of a model."""

import hashlib
from pathlib import Path

from app.core.assembly.manifest import MANIFEST_FILE, manifest_files
from app.core.settings.files import READABLE_BY_ALL, replacing_file
from app.core.settings.model import ModelError, ModelSource


def write_manifest(folder: Path) -> int:
    """Write the manifest of the files below `folder` in one step, and return the number of files.

    Raise ModelError for files that a model may not have, and for names that a manifest cannot hold. Raise OSError when
    a file cannot be read, or the manifest cannot be written.
    """
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
