"""Files of Acme: models that need a licence, and files that no runtime reads."""

from collections.abc import Callable
from pathlib import Path

from acme.settings import AcmeModelSettings
from charioteer.plugins import ForeignFormat, ModelError, ModelMetadata, ModelSource, Servable


class LicensedModels:
    """Loads models with a licence as their runtimes do, if it is valid."""

    elsewhere = False

    def accepts(self, source: ModelSource, /) -> bool:
        return source.settings.of(AcmeModelSettings).licence is not None

    def inspect(self, source: ModelSource, inspect: Callable[[ModelSource], ModelMetadata], /) -> ModelMetadata:
        return inspect(source)

    def load(self, source: ModelSource, load: Callable[[ModelSource], Servable], /) -> Servable:
        if source.settings.of(AcmeModelSettings).licence != "valid":
            raise ModelError(f"{source.folder}: the licence of Acme has expired")
        return load(source)


LOADERS = (LicensedModels(),)


def advice(file: Path) -> str:
    """Return what a file is and how to serve it; "" for unknown formats."""
    return "is a packed model of Acme; unpack it with acme-unpack" if file.suffix == ".acmez" else ""


FORMATS = (ForeignFormat(advice=advice),)
