"""Choose the model that a command runs."""

from app.engine.models.registry import version_sort_key
from app.settings.model import ModelError, ModelSource
from app.settings.server import ModelOptions

__all__ = ("choose_model",)


def choose_model(options: ModelOptions, name: str | None) -> ModelSource:
    """Return the latest version of the model called `name`, or of the only model.

    Raises:
        ModelError: when there is no such model, or several models match.
    """
    from app.assembly.models import find_models

    sources = find_models(options)
    matches = sorted(
        (source for source in sources if name in (None, source.name)),
        key=lambda source: version_sort_key(source.version),
    )
    names = sorted({source.name for source in sources})
    if not matches:
        raise ModelError(f"There is no model {name!r}; there are {', '.join(names)}")
    if len({source.name for source in matches}) > 1:
        raise ModelError(f"There are several models; choose one with --name: {', '.join(names)}")
    return matches[-1]
