"""Where numbers are rounded in a run of the reference: nowhere, or wherever a bfloat16 run would.

The decoder calls `round` on every value that a PyTorch bfloat16 run would store as a bfloat16 tensor; sums inside
a product, a norm or a softmax stay float32 there and here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
Rounding = Callable[[F32], F32]


def exact(values: F32) -> F32:
    """Float32 stays what it is."""
    return values


def bfloat16(values: F32) -> F32:
    """To the nearest bfloat16, ties to even. Finite values only."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32)
