"""Choose the model that a command runs."""

from app.engine.registry import version_order
from app.settings.model import ModelError, ModelSource
from app.settings.server import ModelOptions

__all__ = ("chosen",)


def chosen(options: ModelOptions, name: str | None) -> ModelSource:
    """Return the latest version of the model called `name`, or of the only model.

    Raises:
        ModelError: when there is no such model, or several models match.
    """
    from app.assembly.models import sources

    found = sources(options)
    wanted = sorted(
        (source for source in found if name in (None, source.name)), key=lambda source: version_order(source.version)
    )
    names = sorted({source.name for source in found})
    if not wanted:
        raise ModelError(f"There is no model {name!r}; there are {', '.join(names)}")
    if len({source.name for source in wanted}) > 1:
        raise ModelError(f"There are several models; choose one with --name: {', '.join(names)}")
    return wanted[-1]
