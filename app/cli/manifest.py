"""``charioteer manifest``."""

from cyclopts.types import ExistingDirectory

from app.cli.terminal import console

__all__ = ("manifest",)


def manifest(directory: ExistingDirectory) -> None:
    """Write model.sha256 into a model's folder: the SHA-256 of every file of it, of all versions, as sha256sum does.

    A server loads the model only as it is listed from then on; `charioteer check` says whether it still is.

    Args:
        directory: The model's own folder, above its versions where it has any.
    """
    from app.assembly.manifest import MANIFEST_FILE, SIGNATURE_FILE, write_manifest

    count = write_manifest(directory)
    printed = console()
    files = "1 file" if count == 1 else f"{count} files"
    printed.print(f"Wrote {directory / MANIFEST_FILE}: {files}", markup=False, soft_wrap=True)
    if (directory / SIGNATURE_FILE).exists():
        advice = "was made before; sign the list anew"
        printed.print(f"{directory / SIGNATURE_FILE} {advice}", markup=False, soft_wrap=True)
