"""Compute saliency maps with xaitk-saliency from masks and scores in a file; runs in its own environment."""

import importlib
import sys
from typing import Any

import numpy as np

scoring = "xaitk_saliency.impls.gen_classifier_conf_sal"
rise: Any = importlib.import_module(f"{scoring}.rise_scoring")
occlusion: Any = importlib.import_module(f"{scoring}.occlusion_scoring")


def main(path: str) -> None:
    """Write maps next to their inputs: masks (n, h, w), scores (n, k), windows and their scores, full scores (k,)."""
    arrays = np.load(f"{path}/given.npz")
    masks, scores, full_scores = arrays["masks"], arrays["scores"], arrays["whole"]
    np.savez(
        f"{path}/oracle.npz",
        rise=rise.RISEScoring(p1=0.0).generate(full_scores, scores, masks),
        debiased=rise.RISEScoring(p1=0.5).generate(full_scores, scores, masks),
        occlusion=occlusion.OcclusionScoring().generate(full_scores, arrays["window_scores"], arrays["windows"]),
    )


if __name__ == "__main__":
    main(sys.argv[1])
