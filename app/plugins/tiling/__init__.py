"""Large images in tiles, so that detectors, oriented detectors and segmenters find small objects."""

from app.core.hooks import Page, Plugin, Ref

plugin = Plugin(
    api=2,
    model_settings={"": Ref("app.plugins.tiling.parameters:TilingSection")},
    parameters=(Ref("app.plugins.tiling.parameters:TileParameters"),),
    loaders=Ref("app.plugins.tiling.loader:LOADERS"),
    page=Page(parts={"try": "tiles.js"}),
    start=Ref("app.plugins.tiling.step:start"),
)
