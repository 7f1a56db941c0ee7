"""Unpack archives in tests."""

import tarfile
from pathlib import Path


def unpack(file: Path, folder: Path) -> None:
    """Unpack a tar archive of regular files into `folder`."""
    with tarfile.open(file) as tar:
        # Python 3.11.2 of Debian 12 has no filters, and 3.12 and 3.13 warn if there is none.
        if hasattr(tarfile, "data_filter"):
            tar.extractall(folder, filter="data")
        else:
            tar.extractall(folder)
