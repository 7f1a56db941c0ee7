"""Models of MAITE, and answers of MAITE and supervision, for the Python runtime."""

from app.core.runtimes.python.task_adapters import PythonLibrary
from app.plugins.jatic.maite.python_models import adapt, own_scores
from app.plugins.jatic.supervision import to_arrays

LIBRARIES = (PythonLibrary(model=adapt, answer=own_scores), PythonLibrary(answer=to_arrays))
