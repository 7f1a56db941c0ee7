"""``charioteer manifest``."""

from cyclopts.types import ExistingDirectory

from app.cli.terminal import console


def manifest(directory: ExistingDirectory) -> None:
    """Write model.sha256 into a model's folder: the SHA-256 of every file, of all versions, in the format of sha256sum.

    From then on, a server loads the model only if its files match the list. `charioteer check` checks the same.

    Args:
        directory: The model's folder; for a model with versions, the folder above them.
    """
    from app.assembly.manifest import MANIFEST_FILE, SIGNATURE_FILE, write_manifest

    count = write_manifest(directory)
    terminal = console()
    files = "1 file" if count == 1 else f"{count} files"
    terminal.print(f"Wrote {directory / MANIFEST_FILE}: {files}", markup=False, soft_wrap=True)
    if (directory / SIGNATURE_FILE).exists():
        advice = "is outdated; sign the new list"
        terminal.print(f"{directory / SIGNATURE_FILE} {advice}", markup=False, soft_wrap=True)
