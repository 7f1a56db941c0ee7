"""A function for CVAT's ``cvat-cli``: it runs where that command runs, and asks a server for the annotations."""

import importlib
import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image

from app.clients.client import PROTOCOLS, open_client
from app.clients.protocol import InferenceClientError
from app.plugins.labeling.regions import polygons_of, rings_inside
from tasks.shapes import read_shape
from tasks.vision.contours import mask_of_contours

_SECONDS = 100.0
_POLYGON_EPSILON = 1.0


class CvatFunction:
    """Annotates images of CVAT.

    Attributes:
        spec: the labels, as `cvat_sdk` describes them.
    """

    def __init__(self, url: str, model: str, labels: str, key_file: str) -> None:
        try:
            self._cvat: Any = importlib.import_module("cvat_sdk.auto_annotation")
            self._masks: Any = importlib.import_module("cvat_sdk.masks")
        except ImportError:
            raise ImportError("A function of CVAT needs the extra cvat, pip install 'charioteer[cvat]'") from None
        names = [name for name in map(str.strip, labels.split(",")) if name]
        self._ids = {name: index for index, name in enumerate(dict.fromkeys(names))}
        specs = [self._cvat.label_spec(name, index) for name, index in self._ids.items()]
        self.spec: Any = self._cvat.DetectionFunctionSpec(labels=specs)
        self._url, self._model = url, model
        self._headers = {"X-API-Key": Path(key_file).read_text().strip()} if key_file else {}

    def detect(self, context: Any, image: PIL.Image.Image) -> Sequence[Any]:
        """Return the annotations of one image.

        Raise RuntimeError with the reason if the server does not answer it.
        """
        file = io.BytesIO()
        image.convert("RGB").save(file, "PNG", compress_level=1)
        parameters: dict[str, float] = {"epsilon": _POLYGON_EPSILON} if context.conv_mask_to_poly else {}
        if context.conf_threshold is not None:
            parameters["score_threshold"] = context.conf_threshold
        protocol = PROTOCOLS["v1"]
        try:
            with open_client(self._url, protocol, self._model, headers=self._headers, timeout=_SECONDS) as client:
                records: Any = client(file.getvalue(), parameters)
        except InferenceClientError as error:
            raise RuntimeError(f"{self._url}: {error}") from None
        known = [record for record in records if record.get("label") in self._ids]
        if known and known[0].keys() == {"label", "score"}:
            # All classes, the best first.
            return [self._cvat.tag(self._ids[known[0]["label"]])]
        return [shape for record in known for shape in self._shapes(record, image, polygons=context.conv_mask_to_poly)]

    def _shapes(self, record: dict[str, Any], image: PIL.Image.Image, *, polygons: bool) -> Iterator[Any]:
        label, (width, height) = self._ids[record["label"]], image.size
        if "xmin" in record:
            yield self._cvat.rectangle(label, [record[name] for name in ("xmin", "ymin", "xmax", "ymax")])
        elif "cx" in record:
            x, y, w, h = record["cx"] * width, record["cy"] * height, record["w"] * width, record["h"] * height
            corners = [x - w / 2, y - h / 2, x + w / 2, y + h / 2]
            # CVAT turns a rectangle clockwise about its centre.
            yield self._cvat.rectangle(label, corners, rotation=math.degrees(record["r"]) % 360)
        elif "contour" in record:
            rings = rings_inside(read_shape("contour", record), width, height)
            if polygons:
                for ring in polygons_of(rings):
                    yield self._cvat.polygon(label, np.ravel(ring).tolist())
            elif rings:
                mask = mask_of_contours(rings, width, height).astype(np.bool_)
                yield self._cvat.mask(label, self._masks.encode_mask(mask))


def cvat_function(url: str, model: str, labels: str, key_file: str = "") -> CvatFunction:
    """Return a function for ``cvat-cli``, to annotate with a model of a server.

    Raise ImportError without the extra cvat.

    Args:
        url: the address of the server, such as ``http://127.0.0.1:8080``.
        model: the name of the model.
        labels: the labels of the model that become annotations, separated by commas. CVAT matches them by name.
        key_file: a file with a key of the server, if it requires one.
    """
    return CvatFunction(url, model, labels, key_file)
