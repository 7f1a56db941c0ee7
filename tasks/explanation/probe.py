"""What the tasks need to look for a finding again in a picture of which a part is hidden."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.vision.image import Image
from tasks.vision.selection import SelectionParameters

__all__ = ("ImageItem", "best_match", "chosen_objects", "probe_item")

_FAINT = 0.1


class ImageItem(Protocol):
    """What a model of pictures is given: one picture, and what is wanted of it."""

    @property
    def image(self) -> Image: ...

    @property
    def parameters(self) -> SelectionParameters: ...


class Found(Protocol):
    """Findings in one picture."""

    @property
    def labels(self) -> Sequence[str]: ...

    @property
    def scores(self) -> NDArray[np.float32]: ...


ItemT = TypeVar("ItemT", bound=ImageItem)


def chosen_objects(found: Found, label: str | None, most: int) -> list[int]:
    """Indices of the objects to explain, in their order: those of class `label`, or all; at most `most`."""
    return [index for index, each in enumerate(found.labels) if label in (None, each)][:most]


def probe_item(item: ItemT, image: Image, targets: Found, *, faint: bool) -> ItemT:
    """`item` with `image` in the place of its own, asking for all that could be one of `targets`, in any order.

    Args:
        item: asks for the targets.
        image: its own, with a part hidden.
        targets: what will be looked for.
        faint: whether to leave out what scores under a tenth of the weakest target: it says as much as nothing, and a
            detector that is asked for everything proposes thousands of objects.
    """
    threshold = _FAINT * float(targets.scores.min()) if faint else 0.0
    wanted: Any = msgspec.structs.replace(
        item.parameters,
        action=None,
        score_threshold=min(max(threshold, 0.0), 1.0),
        top_k=None,
        labels=tuple(dict.fromkeys(targets.labels)),
    )
    return msgspec.structs.replace(item, image=image, parameters=wanted)  # pyright: ignore


def best_match(targets: Found, seen: Found, overlap: NDArray[np.float32]) -> NDArray[np.float32]:
    """(K,) how well each target was found again: the best product of overlap and score among objects of its class.

    D-RISE (Petsiuk et al. 2021, equation 3) also multiplies by the cosine of the class probabilities. A detector here
    gives one class and one score for each object, so that being of the same class takes that place.

    Args:
        targets: K objects.
        seen: M objects.
        overlap: (K, M) intersection over union of each pair.
    """
    same = np.array(targets.labels)[:, np.newaxis] == np.array(seen.labels, dtype=object)[np.newaxis]
    return np.max(np.where(same, overlap * seen.scores, 0), axis=1, initial=0).astype(np.float32)
