"""Load a model, whatever its code raises."""

from collections.abc import Callable

from app.core.engine.error_text import is_ctrl_c
from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelError, ModelSource


def load_model(source: ModelSource, load: Callable[[ModelSource], Servable]) -> Servable:
    """Load `source` with `load`.

    Raise ModelError for every exception: a failure in a framework or in a model's own code must affect this model only.
    """
    try:
        return load(source)
    except ModelError:
        raise
    except BaseException as error:  # `SystemExit` and `KeyboardInterrupt` from model code must not stop the server
        if is_ctrl_c(error):
            raise
        raise ModelError(f"{source.folder} failed to load: {type(error).__name__}: {error}") from error
