"""Run JATIC_ONNX models with modelmaite on images in files; runs in its own environment."""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np


def main(folder: str) -> None:
    """Write modelmaite.npz beside the images.npz of each model below `folder`."""
    for images in sorted(Path(folder).glob("*/images.npz")):
        model, is_detector = images.parent, (images.parent / "detector").exists()
        wrappers: Any = importlib.import_module(
            f"modelmaite.{'object_detection' if is_detector else 'image_classification'}"
        )
        wrapper = wrappers.OnnxODModel if is_detector else wrappers.OnnxICModel
        paths = {"weights_path": model / "model.onnx", "config_path": model / "model-metadata.json"}
        answers = wrapper(**paths, device="cpu")(list(np.load(images)["images"]))
        fields = ("boxes", "labels", "scores") if is_detector else ()
        arrays = {name: np.stack([getattr(answer, name) for answer in answers]) for name in fields}
        np.savez(model / "modelmaite.npz", allow_pickle=False, **(arrays or {"scores": np.stack(answers)}))


if __name__ == "__main__":
    main(sys.argv[1])
