"""Generate samples of random numbers."""

from typing import Any

import numpy as np

from app.plugins.drift.sample import IMAGE_FEATURES, PREDICTION_FEATURES, Observation, Sample, build_sample

CAMERAS = ("north", "south")


def observations(
    count: int,
    seed: int = 0,
    *,
    shift: float = 0.0,
    with_predictions: bool = False,
    with_embeddings: bool = True,
    prefix: str = "",
) -> list[Observation]:
    """Generate images of two cameras, with every number shifted by `shift` standard deviations."""
    rng = np.random.default_rng(seed)
    return [
        Observation(
            id=f"{prefix}{index}",
            image=rng.normal(shift, 1, len(IMAGE_FEATURES)),
            embedding=rng.normal(shift, 1, 24).astype(np.float32) if with_embeddings else None,
            findings=rng.normal(size=len(PREDICTION_FEATURES)) if with_predictions else None,
            labels={"cat" if rng.random() < 0.5 else "dog": 1} if with_predictions else {},
            metadata={"camera": CAMERAS[index % 2]},
        )
        for index in range(count)
    ]


def sample(count: int, seed: int = 0, *, task: str = "", **options: Any) -> Sample:
    """Return a sample of `observations` with these options."""
    task = task or ("OBJECT_DETECTION" if options.get("with_predictions") else "")
    return build_sample(observations(count, seed, **options), task)
