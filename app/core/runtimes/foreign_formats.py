"""What files of other servers and frameworks say about a model. Plugins read them."""

from pathlib import Path

from app.core.plugins import registry


def advice_for(file: Path) -> str:
    """Return what a file is and how to serve it, after its path in an error; "" for unknown formats."""
    return next((advice for item in registry().formats if (advice := item.advice(file))), "")


def advice_in(folder: Path) -> str:
    """Return the end of an error about a folder: advice for its first file of another framework; "" if none has one."""
    files = sorted(folder.iterdir()) if folder.is_dir() else ()
    # A class that loads one of the other files needs only its settings.
    for file in sorted(files, key=lambda file: file.name != "model.py"):
        if advice := advice_for(file):
            return f"; {file} {advice}"
    return ""
