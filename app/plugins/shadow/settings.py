"""The setting ``"shadow"`` of a model."""

from typing import Annotated

import msgspec


class ShadowSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which version answers in the shadow of the served ones.

    Attributes:
        version: a version folder of the model that is not served; empty for none.
        share: the share of requests that it answers too.
        records: whether its answers are recorded, as truths and disagreeing images need; otherwise only how far they
            agree.
    """

    version: str = ""
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.1
    records: bool = True
