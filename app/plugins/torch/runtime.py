"""The runtime transformers."""

from app.core.runtimes.runtime import ModuleRuntime
from app.plugins.torch.files import is_model_folder

TRANSFORMERS = ModuleRuntime("transformers", 20, "app.plugins.torch.binding", is_model_folder)
RUNTIMES = (TRANSFORMERS,)
