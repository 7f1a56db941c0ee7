"""Objects of the library supervision as answers of Python classes."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=1,
    extends={"python.answers": Ref("app.plugins.supervision.answers:CONVERTERS")},
)
