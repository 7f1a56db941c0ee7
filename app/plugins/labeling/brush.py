"""Encode masks as the bit stream of Label Studio's brush."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.vision.contours import mask_of_contours

_CHANNELS = 4
"""The mask is repeated as the red, green, blue and alpha of each pixel."""
_OPAQUE = 255
_WORD_BITS = 8
_LENGTH_BITS = np.array([3, 4, 8, 16])
_MAX_RUN = 1 << int(_LENGTH_BITS[-1])
_CODE_BITS = 32


def encode_rings(rings: Sequence[NDArray[np.float64]], width: int, height: int) -> list[int]:
    """Return the bytes of the mask of an object, which lies in an image of `width` x `height` pixels."""
    points = np.rint(np.concatenate(rings)).astype(int)
    top, bottom = int(points[:, 1].min()), int(points[:, 1].max()) + 1
    # Only the rows of the object are drawn.
    mask = mask_of_contours([ring - (0, top) for ring in rings], width, bottom - top).ravel()
    changes = np.flatnonzero(np.diff(np.pad(mask, 1))) + top * width
    lengths = np.diff(np.concatenate([[0], changes, [width * height]]))
    return _encode_runs(lengths * _CHANNELS, width * height * _CHANNELS)


def _encode_runs(lengths: NDArray[np.int64], count: int) -> list[int]:
    """Return the bytes of runs of 0 and `_OPAQUE` in turn, starting with 0; those of no length are left out.

    Each run has the bit 1, two bits for the number of bits of its length minus 1, that length, and its value.
    """
    pieces = -(-lengths // _MAX_RUN)
    values = np.repeat(np.arange(len(lengths)) % 2 * _OPAQUE, pieces)
    sizes = np.full(int(pieces.sum()), _MAX_RUN)
    last = np.cumsum(pieces)[lengths > 0] - 1
    sizes[last] = (lengths[lengths > 0] - 1) % _MAX_RUN + 1
    kinds = np.searchsorted(1 << _LENGTH_BITS, sizes)
    bits = _LENGTH_BITS[kinds]
    codes = (4 + kinds) << (bits + _WORD_BITS) | (sizes - 1) << _WORD_BITS | values
    widths = 3 + bits + _WORD_BITS
    aligned = (codes << (_CODE_BITS - widths)).astype(">u4")
    rows = np.unpackbits(aligned.view(np.uint8).reshape(-1, 4), axis=1)
    header = f"{count:032b}{_WORD_BITS - 1:05b}" + "".join(f"{size - 1:04b}" for size in _LENGTH_BITS.tolist())
    stream = np.concatenate([np.array(list(header), np.uint8), rows[np.arange(_CODE_BITS) < widths[:, np.newaxis]]])
    return np.packbits(stream).tolist()
