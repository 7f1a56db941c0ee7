"""Large images in tiles, so that detectors, oriented detectors and segmenters find small objects."""

from app.core.hooks import ModelSection, Page, Plugin, Ref
from app.plugins.tiling.settings import TileOptions

plugin = Plugin(
    api=1,
    model_settings=(ModelSection(type=Ref("app.plugins.tiling.parameters:TilingSection")),),
    command_options={"predict": TileOptions},
    parameters=(ModelSection(type=Ref("app.plugins.tiling.parameters:TileParameters")),),
    loaders=Ref("app.plugins.tiling.loader:LOADERS"),
    page=Page(parts={"try": "tiles.js"}),
    start=Ref("app.plugins.tiling.metrics:start"),
)
