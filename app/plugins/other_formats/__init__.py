"""Model folders of Triton, and advice for files that no runtime reads."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=1,
    loaders=Ref("app.plugins.other_formats.loader:LOADERS"),
    formats=Ref("app.plugins.other_formats.formats:FORMATS"),
)
