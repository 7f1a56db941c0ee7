"""Objects of MAITE and supervision as answers of Python classes."""

from app.plugins.jatic import supervision
from app.plugins.jatic.maite import python_models

CONVERTERS = (*python_models.CONVERTERS, *supervision.CONVERTERS)
