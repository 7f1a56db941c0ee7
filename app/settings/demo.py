"""The models and images of `--demo`: a part of the wheel, and the fixtures of the repository."""

from pathlib import Path

_PACKAGED = Path(__file__).parents[1] / "demo"

IS_CHECKOUT = not _PACKAGED.is_dir()
"""Whether the code runs from the repository. There the demo is the default if no model is named."""

_FOLDER = Path(__file__).parents[2] / "fixtures" if IS_CHECKOUT else _PACKAGED
DEMO_MODELS = _FOLDER / "models"
DEMO_IMAGES = _FOLDER / "images"
