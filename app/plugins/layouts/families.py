"""The layouts of this plugin."""

from app.plugins.layouts.detr import DETR, DETR_SIGMOID, RF_DETR
from app.plugins.layouts.faces import ANCHORS, SCRFD, YUNET
from app.plugins.layouts.objectness import YOLOV5, YOLOX
from app.plugins.layouts.paddle_ocr import CTC, TEXT_MAP
from app.plugins.layouts.pixel_maps import CLASS_MAP, MASK, SEMANTIC
from app.plugins.layouts.ranked_boxes import RT_DETR, TORCHVISION_BOXES

LAYOUTS = (
    YOLOV5,
    YOLOX,
    SEMANTIC,
    MASK,
    CLASS_MAP,
    RF_DETR,
    RT_DETR,
    DETR,
    DETR_SIGMOID,
    TORCHVISION_BOXES,
    YUNET,
    SCRFD,
    ANCHORS,
    TEXT_MAP,
    CTC,
)
