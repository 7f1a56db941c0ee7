"""What xaitk-saliency makes of the masks and scores in a file; runs in an environment of its own."""

import importlib
import sys
from typing import Any

import numpy as np

scoring = "xaitk_saliency.impls.gen_classifier_conf_sal"
rise: Any = importlib.import_module(f"{scoring}.rise_scoring")
occlusion: Any = importlib.import_module(f"{scoring}.occlusion_scoring")


def main(path: str) -> None:
    """Write maps beside what they are made of: masks (n, h, w), scores (n, k), the same of windows, whole (k,)."""
    given = np.load(f"{path}/given.npz")
    masks, scores, whole = given["masks"], given["scores"], given["whole"]
    np.savez(
        f"{path}/oracle.npz",
        rise=rise.RISEScoring(p1=0.0).generate(whole, scores, masks),
        debiased=rise.RISEScoring(p1=0.5).generate(whole, scores, masks),
        occlusion=occlusion.OcclusionScoring().generate(whole, given["window_scores"], given["windows"]),
    )


if __name__ == "__main__":
    main(sys.argv[1])
