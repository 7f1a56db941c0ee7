"""Samples of made-up numbers."""

import msgspec
import numpy as np

from app.drift.features import FINDING_FEATURES, IMAGE_FEATURES
from app.drift.sample import Observation, Sample, sample_of

CAMERAS = ("north", "south")


def observations(
    count: int, seed: int = 0, *, shift: float = 0.0, judged: bool = False, embedded: bool = True, prefix: str = ""
) -> list[Observation]:
    """Images of two cameras, every number of which is moved by `shift` deviations."""
    rng = np.random.default_rng(seed)
    return [
        Observation(
            id=f"{prefix}{place}",
            image=rng.normal(shift, 1, len(IMAGE_FEATURES)),
            embedding=rng.normal(shift, 1, 24).astype(np.float32) if embedded else None,
            findings=rng.normal(size=len(FINDING_FEATURES)) if judged else None,
            labels={"cat" if rng.random() < 0.5 else "dog": 1} if judged else {},
            metadata={"camera": CAMERAS[place % 2]},
        )
        for place in range(count)
    ]


def sample(
    count: int, seed: int = 0, *, shift: float = 0.0, judged: bool = False, embedded: bool = True, task: str = ""
) -> Sample:
    """Those images as one sample."""
    task = task or ("OBJECT_DETECTION" if judged else "")
    return sample_of(observations(count, seed, shift=shift, judged=judged, embedded=embedded), task)


def with_cameras(one: Sample, cameras: tuple[str, ...]) -> Sample:
    """The same images, by cameras in turn."""
    metadata = [{"camera": cameras[place % len(cameras)]} for place in range(len(one))]
    return msgspec.structs.replace(one, metadata=metadata)
