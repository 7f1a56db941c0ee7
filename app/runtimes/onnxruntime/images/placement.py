"""Compute the position of an image in a model's input, and map boxes back to the image."""

import math
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

Resize = Literal["letterbox", "pad", "line", "stretch", "crop"]
BoxScale = Literal["axes", "common", "height"]
"""The scale that maps boxes back: that of each axis, the one before the sides were rounded, or that of the height."""

_MAX_ASPECT = 4
"""Images are cropped to this aspect ratio before a resize of the shorter side, which bounds memory for thin strips."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """``input = image * scale + offset``, in pixels; the origin is the top left corner of the top left pixel.

    The sides are those of the upright original image. Scales are input pixels per image pixel. Offsets are the input
    coordinates of the image's left and top border; negative if it is cropped.
    """

    image_width: int
    image_height: int
    scale_x: float
    scale_y: float
    offset_x: float
    offset_y: float

    def boxes_to_image(self, boxes: NDArray[np.float32]) -> NDArray[np.float32]:
        """Convert (N, 4) xyxy boxes from input pixels to image pixels, without clipping."""
        offset = np.array([self.offset_x, self.offset_y] * 2, np.float32)
        scale = np.array([self.scale_x, self.scale_y] * 2, np.float32)
        return (boxes - offset) / scale

    def keypoints_to_image(self, keypoints: NDArray[np.float32]) -> NDArray[np.float32]:
        """Convert (N, K, 2 or more) keypoints x, y from input pixels to image pixels; other numbers stay."""
        converted = keypoints.copy()
        converted[..., 0] = (keypoints[..., 0] - self.offset_x) / self.scale_x
        converted[..., 1] = (keypoints[..., 1] - self.offset_y) / self.scale_y
        return converted

    def rotated_boxes_to_image(self, boxes: NDArray[np.float32]) -> NDArray[np.float32]:
        """Convert (N, 5) boxes cx, cy, w, h, r from input pixels to image pixels; r in radians, clockwise with y down.

        Different scales, as with `stretch`, map an oriented box to a parallelogram. The returned box has the same
        centre and area, and the length and direction of the longer axis. It is exact if the scales are equal.
        """
        cx, cy, width, height, angle = (np.asarray(column, np.float64) for column in boxes.T)
        cosine, sine = np.cos(angle), np.sin(angle)
        stretched_w = width * np.hypot(cosine / self.scale_x, sine / self.scale_y)
        stretched_h = height * np.hypot(sine / self.scale_x, cosine / self.scale_y)
        area = width * height / (self.scale_x * self.scale_y)
        wide = stretched_w >= stretched_h
        longer = np.maximum(np.where(wide, stretched_w, stretched_h), np.finfo(np.float32).tiny)
        along_w = np.arctan2(sine / self.scale_y, cosine / self.scale_x)
        along_h = np.arctan2(sine / self.scale_x, cosine / self.scale_y)
        columns = [
            (cx - self.offset_x) / self.scale_x,
            (cy - self.offset_y) / self.scale_y,
            np.where(wide, longer, area / longer),
            np.where(wide, area / longer, longer),
            np.where(wide, along_w, along_h),
        ]
        return np.stack(columns, axis=1).astype(np.float32)


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """How one image is resized and placed, in integer pixels.

    Attributes:
        cut_x: columns cropped on either side before resizing; `cut_y` are rows.
        width: width of the resized image, as is its `height`.
        left: input column of the resized image's first column; negative if it is cropped. `top` is that of its rows.
    """

    cut_x: int = 0
    cut_y: int = 0
    width: int
    height: int
    left: int = 0
    top: int = 0
    placement: Placement


def fit(
    image_size: tuple[int, int],
    input_size: tuple[int, int],
    resize: Resize,
    shorter_side: int,
    *,
    cut: bool = True,
    half_even: bool = True,
    box_scale: BoxScale = "axes",
) -> Fit:
    """Compute how an image is resized and placed in the input.

    Args:
        image_size: (height, width) of the image, pixels.
        input_size: (height, width) of the model's input, pixels.
        resize: `letterbox` as in Ultralytics' LetterBox; `pad` with the padding only at the right and bottom, as in
            YOLOX; `line` as PaddleOCR resizes lines of text, to the height of the input, and to its width at most,
            which squeezes longer lines; `crop` as in torchvision's Resize and CenterCrop; `stretch` like `crop`, but
            without the aspect ratio.
        shorter_side: for `crop` and `stretch`, the length of the shorter side before the centre crop, pixels.
        cut: whether `crop` first cuts thin strips, so that less is resized.
        half_even: whether a centre crop rounds half a pixel to even, as in torchvision, or down, as in transformers.
        box_scale: for `letterbox` and `pad`, `common` as in Ultralytics and YOLOX, `height` as in InsightFace.
    """
    image_height, image_width = image_size
    height, width = input_size
    cut_x = cut_y = left = top = scale = 0
    if resize in ("letterbox", "pad"):
        scale = min(width / image_width, height / image_height)
        # LetterBox of Ultralytics rounds; YOLOX and InsightFace, which pad, truncate.
        rounded = round if resize == "letterbox" else int
        new_width, new_height = max(1, rounded(image_width * scale)), max(1, rounded(image_height * scale))
        if resize == "letterbox":
            left, top = round((width - new_width) / 2 - 0.1), round((height - new_height) / 2 - 0.1)
    elif resize == "line":
        new_width, new_height = min(width, math.ceil(height * (image_width / image_height))), height
    elif resize == "crop":
        if cut:
            cut_x = max(0, (image_width - _MAX_ASPECT * image_height) // 2)
            cut_y = max(0, (image_height - _MAX_ASPECT * image_width) // 2)
        kept_width, kept_height = image_width - 2 * cut_x, image_height - 2 * cut_y
        shorter = min(kept_width, kept_height)
        new_width, new_height = kept_width * shorter_side // shorter, kept_height * shorter_side // shorter
    else:
        new_width, new_height = width * shorter_side // min(input_size), height * shorter_side // min(input_size)
    if resize in ("crop", "stretch"):
        left, top = -((new_width - width) // 2), -((new_height - height) // 2)
        if half_even:
            left = round((width - new_width) / 2) if width < new_width else (width - new_width) // 2
            top = round((height - new_height) / 2) if height < new_height else (height - new_height) // 2
    scale_x, scale_y = new_width / (image_width - 2 * cut_x), new_height / (image_height - 2 * cut_y)
    if resize in ("letterbox", "pad") and box_scale != "axes":
        scale_x = scale_y = scale if box_scale == "common" else scale_y
    placement = Placement(
        image_width=image_width,
        image_height=image_height,
        scale_x=scale_x,
        scale_y=scale_y,
        offset_x=left - cut_x * scale_x,
        offset_y=top - cut_y * scale_y,
    )
    return Fit(cut_x=cut_x, cut_y=cut_y, width=new_width, height=new_height, left=left, top=top, placement=placement)
