"""The setting ``"shadow"`` of a model, and the version that it names."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from app.core.settings.model import SETTINGS_FILE, ModelError, ModelSource, read_settings


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


_OFF = ShadowSettings()


def settings_of(source: ModelSource) -> ShadowSettings:
    """Return the settings of a model's shadow version."""
    # The attribute is read for every request; `ModelSettings.of` would search for it.
    return getattr(source.settings, "shadow", _OFF)


def shadow_source(source: ModelSource, served: Sequence[str]) -> ModelSource:
    """Return the shadow version of a model with the versions `served`.

    Raise ModelError when the model has no such version, or it answers clients too.
    """
    version, root, settings = settings_of(source).version, source.root, source.settings
    place = f'{root or source.folder}: "shadow":'
    folders = [] if root is None else [root / version, root / f"v{version}"]
    folder = next((folder for folder in folders if folder.is_dir()), None)
    if folder is None or Path(version).name != version:
        raise ModelError(f"{place} There is no version {version!r} beside the served ones")
    if version in served:
        others = [other for other in served if other != version]
        example = f", such as {msgspec.json.encode(others).decode()}" if others else ""
        raise ModelError(f'{place} version {version!r} answers clients too; set "versions" to the others{example}')
    if (folder / SETTINGS_FILE).is_file():
        settings = read_settings(folder)
        if settings.onnxruntime.devices is None:
            settings = msgspec.structs.replace(settings, onnxruntime=source.settings.onnxruntime)
    file = None if settings.uri is None else folder / settings.uri
    return msgspec.structs.replace(source, version=version, folder=folder, settings=settings, file=file, fault=None)
