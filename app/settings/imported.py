"""What the configuration of another server says about a model."""

from collections.abc import Mapping

import msgspec

__all__ = ("ImportedConfig",)


class ImportedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a model that was made for another server.

    Attributes:
        file: the name of its file.
        settings: our settings with the same effect, without those that ``model-settings.json`` overrides.
        ignored: the names in it that have no effect here.
        inputs: the shapes of the graph's inputs, by name; -1 is any size. Empty if the file has none.
        outputs: the shapes of its outputs.
    """

    file: str
    settings: Mapping[str, object]
    ignored: tuple[str, ...]
    inputs: Mapping[str, tuple[int, ...]] = {}
    outputs: Mapping[str, tuple[int, ...]] = {}
