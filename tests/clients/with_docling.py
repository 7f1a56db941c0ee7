"""Check docling's remote models: ``python -m tests.clients.with_docling HTTP_ADDRESS GRPC_ADDRESS REPOSITORY``.

The preprocessing of layout and figures is in the folders of the models, where docling looks for it.
"""

import importlib
import sys
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from PIL import Image

from tests.clients.checks import SCENE, SHAPE, run

HTTP, GRPC, REPOSITORY = sys.argv[1:]
ENGINES = "docling.models.inference_engines"
options_module: Any = importlib.import_module("docling.datamodel.pipeline_options")
CONNECTIONS = [
    {"url": url, "transport": transport, "use_binary_data": binary}
    for url, transport in ((HTTP, "http"), (GRPC, "grpc"))
    for binary in (True, False)
]
PAGE = Path(__file__).parents[2] / "docs" / "coming_from.md"


def engine(task: str, class_name: str, repo_id: str, connection: dict[str, Any], **options: Any) -> tuple[Any, Any]:
    """Return an engine of docling that asks the tensor view of a model, and its class of inputs."""
    package = f"{ENGINES}.{task}"
    engine_class = getattr(importlib.import_module(f"{package}.api_kserve_v2_engine"), f"ApiKserveV2{class_name}Engine")
    options_class = getattr(
        importlib.import_module(f"docling.datamodel.{task}_engine_options"), f"ApiKserveV2{class_name}EngineOptions"
    )
    specs: Any = importlib.import_module("docling.datamodel.stage_model_specs")
    found = engine_class(
        enable_remote_services=True,
        options=options_class(model_name=f"{repo_id}@tensors", **connection, **options),
        model_config=specs.EngineModelConfig(repo_id=repo_id),
        accelerator_options=options_module.AcceleratorOptions(),
        artifacts_path=REPOSITORY,
    )
    found.initialize()
    return found, getattr(importlib.import_module(f"{package}.base"), f"{class_name}EngineInput")


def check_layout() -> None:
    for connection in CONNECTIONS:
        layout, item = engine("object_detection", "ObjectDetection", "layout", connection)
        sizes = ((200, 100), (40, 80))
        wide, high = layout.predict_batch([item(image=Image.new("RGB", size)) for size in sizes])
        # The graph scales fractions to the sizes of the images, which docling sends.
        assert (wide.label_ids, wide.bboxes[0], high.bboxes[0]) == ([1, 0, 1], [50, 50, 100, 75], [10, 40, 20, 60])
        assert layout.get_label_mapping() == {0: "cat", 1: "dog"}


def check_figures() -> None:
    for connection in CONNECTIONS:
        figures, item = engine("image_classification", "ImageClassification", "figures", connection, top_k=2)
        (found,) = figures.predict_batch([item(image=Image.open(BytesIO(SHAPE)))])
        assert figures.get_label_mapping()[found.label_ids[0]] == "blue star"
        assert len(found.scores) == 2


def check_ocr() -> None:
    ocr_model: Any = importlib.import_module("docling.models.stages.ocr.kserve_v2_ocr_model")
    base_models: Any = importlib.import_module("docling.datamodel.base_models")
    scene = Image.open(BytesIO(SCENE))
    for connection in CONNECTIONS:
        ocr_options = options_module.KserveV2OcrOptions(
            model_name="ocr", **connection, lang=["english"], scale=1.0, mode=options_module.OcrMode.FULL_PAGE
        )
        ocr = ocr_model.KserveV2OcrModel(True, None, ocr_options, options_module.AcceleratorOptions(), "en", True)
        backend = SimpleNamespace(is_valid=lambda: True, get_page_image=lambda **_: scene)
        page = base_models.Page(page_no=1, size=base_models.Size(width=scene.width, height=scene.height))
        page._backend = backend
        confidence = SimpleNamespace(pages={1: SimpleNamespace()})
        result = SimpleNamespace(errors=[], timings={}, confidence=confidence)
        assert list(ocr(result, [page])) == [page]
        assert result.errors == []
        (cell,) = page.cells
        assert (cell.text, cell.confidence) == (f"{scene.width}x{scene.height} Å", 0.75)
        assert cell.rect.to_bounding_box().as_tuple() == (0, 0, scene.width, scene.height)


def check_recipe() -> None:
    """Run the options in the documentation."""
    code = PAGE.read_text().partition('```python title="docling"\n')[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    stages = (names["options"].layout_options, names["options"].picture_classification_options)
    assert [stage.engine_options.model_name for stage in stages] == ["layout@tensors", "figures@tensors"]
    assert names["options"].ocr_options.transport == "grpc"


if __name__ == "__main__":
    run(globals())
