"""The test models' K-quantiser against the `gguf` package's reading of it."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from tests.models_for_tests.k_quants import quantize_k
from tests.models_for_tests.synthetic import TYPES


@pytest.mark.parametrize(("name", "error"), [("Q4_K", 0.09), ("Q5_K", 0.045), ("Q6_K", 0.03)])
def test_quantised_values_read_back(name: str, error: float) -> None:
    values = np.random.default_rng(3).normal(0, 0.1, (24, 768)).astype(np.float32)
    read = gguf.quants.dequantize(quantize_k(values, TYPES[name]), TYPES[name])
    assert read.shape == values.shape
    found = float(np.linalg.norm(read - values) / np.linalg.norm(values))
    assert found < error


def test_zeros_stay_zero() -> None:
    for name in ("Q4_K", "Q5_K", "Q6_K"):
        packed = quantize_k(np.zeros((2, 256), np.float32), TYPES[name])
        assert not gguf.quants.dequantize(packed, TYPES[name]).any()
