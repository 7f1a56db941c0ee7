"""Generate samples of random numbers."""

import msgspec
import numpy as np

from app.drift.features import FINDING_FEATURES, IMAGE_FEATURES
from app.drift.sample import Observation, Sample, sample_of

CAMERAS = ("north", "south")


def observations(
    count: int, seed: int = 0, *, shift: float = 0.0, judged: bool = False, embedded: bool = True, prefix: str = ""
) -> list[Observation]:
    """Generate images of two cameras, with every number shifted by `shift` standard deviations."""
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
    """Return the images as one sample."""
    task = task or ("OBJECT_DETECTION" if judged else "")
    return sample_of(observations(count, seed, shift=shift, judged=judged, embedded=embedded), task)


def with_cameras(one: Sample, cameras: tuple[str, ...]) -> Sample:
    """Return the same images, with the cameras alternating."""
    metadata = [{"camera": cameras[place % len(cameras)]} for place in range(len(one))]
    return msgspec.structs.replace(one, metadata=metadata)
