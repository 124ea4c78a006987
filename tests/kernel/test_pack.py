"""Reading GGUF blocks and packing them: the bits of the format's own reader, the error of packing, and the refusals."""

from __future__ import annotations

from typing import cast

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from gearshift import _kernel
from tests.models_for_tests.k_quants import quantize_k

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]

K_TYPES = (Type.Q4_K, Type.Q5_K, Type.Q6_K)
PLAIN_TYPES = (Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1)
FOUR_BITS = (Type.Q4_0, Type.Q4_1, Type.Q4_K)

RELATIVE_ERROR = {4: 0.0035, 8: 0.007}
"""RMS of what packing adds to the source's own weights; measured 0.2 to 0.3% and 0.4 to 0.6%."""
GRID_ERROR = 0.004
"""The same for Q5_0, whose 32 levels the 8-bit format holds as they are; measured 0.3%."""


def quantized(weights: F32, kind: Type) -> U8:
    if kind in K_TYPES:
        return np.ascontiguousarray(quantize_k(weights, kind)).reshape(-1)
    return np.ascontiguousarray(gguf.quantize(weights, kind)).view(np.uint8).reshape(-1)


def dequantized(data: U8, kind: Type, shape: tuple[int, int]) -> F32:
    _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    with np.errstate(all="ignore"):
        return gguf.dequantize(data.reshape(-1, block_bytes), kind).astype(np.float32).reshape(shape)


def some_weights(n_out: int, n_in: int, seed: int = 1) -> F32:
    rng = np.random.default_rng(seed)
    rows = rng.uniform(0.2, 3, (n_out, 1))
    return (rows * rng.normal(0, 0.05, (n_out, n_in))).astype(np.float32)


def packed_weights(data: U8, kind: Type, n_out: int, n_in: int, bits: int = 0, threads: int = 2) -> F32:
    packed = _kernel.pack_linear(data, int(kind), n_out, n_in, bits, threads)
    return _kernel.unpack_linear(packed, n_out, n_in, bits or _kernel.default_bits(int(kind)))


def relative_error(got: F32, want: F32) -> float:
    return float(np.sqrt(np.square(got - want, dtype=np.float64).sum() / np.square(want, dtype=np.float64).sum()))


@pytest.mark.parametrize("kind", PLAIN_TYPES + K_TYPES, ids=lambda kind: cast(Type, kind).name)
def test_dequantize_gives_the_bits_of_the_gguf_package(kind: Type) -> None:
    data = quantized(some_weights(5, 512), kind)
    got = _kernel.dequantize(data, int(kind), 5 * 512)
    np.testing.assert_array_equal(got.reshape(5, 512), dequantized(data, kind, (5, 512)))


@pytest.mark.parametrize("kind", PLAIN_TYPES + K_TYPES, ids=lambda kind: cast(Type, kind).name)
def test_dequantize_of_arbitrary_bytes(kind: Type) -> None:
    """Every code and sign, with scales that may be subnormal, infinite or no number."""
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(7)
    data = rng.integers(0, 256, 300 * block_bytes, dtype=np.uint8)
    want = dequantized(data, kind, (300, block)).reshape(-1)
    got = _kernel.dequantize(data, int(kind), 300 * block)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    finite = ~np.isnan(want)
    np.testing.assert_array_equal(got[finite], want[finite])


@pytest.mark.parametrize("kind", PLAIN_TYPES + K_TYPES, ids=lambda kind: cast(Type, kind).name)
def test_packing_keeps_the_weights(kind: Type) -> None:
    n_out, n_in = 37, 768
    data = quantized(some_weights(n_out, n_in), kind)
    bits = 4 if kind in FOUR_BITS else 8
    assert _kernel.default_bits(int(kind)) == bits
    got = packed_weights(data, kind, n_out, n_in)
    most = GRID_ERROR if kind == Type.Q5_0 else RELATIVE_ERROR[bits]
    assert relative_error(got, dequantized(data, kind, (n_out, n_in))) < most


@pytest.mark.parametrize("n_in", [64, 96, 576, 1536, 2080, 4928])
@pytest.mark.parametrize("kind", [Type.Q4_1, Type.Q8_0])
def test_every_width_packs(kind: Type, n_in: int) -> None:
    data = quantized(some_weights(19, n_in), kind)
    bits = _kernel.default_bits(int(kind))
    packed = _kernel.pack_linear(data, int(kind), 19, n_in, 0)
    assert len(packed) == _kernel.packed_bytes(19, n_in, bits)
    got = _kernel.unpack_linear(packed, 19, n_in, bits)
    assert relative_error(got, dequantized(data, kind, (19, n_in))) < RELATIVE_ERROR[bits]


@pytest.mark.parametrize("kind", [Type.Q4_1, Type.Q6_K])
def test_the_number_of_threads_changes_nothing(kind: Type) -> None:
    data = quantized(some_weights(100, 512), kind)
    one = _kernel.pack_linear(data, int(kind), 100, 512, 0, 1)
    assert one == _kernel.pack_linear(data, int(kind), 100, 512, 0, 3)


@pytest.mark.parametrize("bits", [4, 8])
def test_flat_channels_stay_exact_by_giving_up_precision(bits: int) -> None:
    """Weights of one size fill the sums: the scale must grow until limit * sum of |w_int| stays below 2^31."""
    signs = np.random.default_rng(3).integers(0, 2, (16, 1024)) * 2 - 1
    weights = (signs * 0.25).astype(np.float32)
    got = packed_weights(weights.view(np.uint8).reshape(-1), Type.F32, 16, 1024, bits)
    scale = np.abs(got).min(axis=1) / 262  # about: 2^31 / (8000 * 1024) = 262 units per weight
    assert np.all(np.abs(got).sum(axis=1) / scale * 8000 < 2**31 * 1.02)
    assert relative_error(got, weights) < 0.01


@pytest.mark.parametrize("bits", [4, 8])
def test_zero_weights_stay_zero(bits: int) -> None:
    weights = some_weights(20, 128)
    weights[3] = 0
    weights[4, :32] = 0
    weights[5] = 1e-42
    got = packed_weights(weights.view(np.uint8).reshape(-1), Type.F32, 20, 128, bits)
    assert np.isfinite(got).all()
    assert not got[3].any()
    assert not got[4, :32].any()
    assert not got[5].any()


def test_negative_steps_of_q4_0() -> None:
    """Q4_0 writers put the largest weight at code 0 and so often use a negative step."""
    weights = -np.abs(some_weights(16, 64))
    weights[:, 1::2] *= -0.4
    data = quantized(weights, Type.Q4_0)
    want = dequantized(data, Type.Q4_0, (16, 64))
    assert relative_error(packed_weights(data, Type.Q4_0, 16, 64), want) < RELATIVE_ERROR[4]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("bits", [4, 8])
def test_weights_that_are_not_finite_are_refused(bad: float, bits: int) -> None:
    weights = some_weights(16, 64)
    weights[9, 33] = bad
    with pytest.raises(ValueError, match="row 9 holds the value"):
        _kernel.pack_linear(weights.view(np.uint8).reshape(-1), int(Type.F32), 16, 64, bits)


def test_broken_scales_are_refused() -> None:
    data = quantized(some_weights(16, 64), Type.Q4_1)
    data[20 * 7 : 20 * 7 + 2] = [0, 0x7C]
    with pytest.raises(ValueError, match="row 3 holds the value"):
        _kernel.pack_linear(data, int(Type.Q4_1), 16, 64, 0)


def test_wrong_sizes_and_types_are_refused() -> None:
    data = quantized(some_weights(16, 64), Type.Q8_0)
    with pytest.raises(ValueError, match="expected 1088"):
        _kernel.pack_linear(data[:-1], int(Type.Q8_0), 16, 64, 0)
    with pytest.raises(ValueError, match="not whole blocks of 32"):
        _kernel.pack_linear(data, int(Type.Q8_0), 16, 65, 0)
    with pytest.raises(ValueError, match="tensor type 9 is not supported"):
        _kernel.pack_linear(data, 9, 16, 64, 0)
    with pytest.raises(ValueError, match="bits is 5"):
        _kernel.pack_linear(data, int(Type.Q8_0), 16, 64, 5)
    with pytest.raises(ValueError, match="n_out is 0"):
        _kernel.packed_bytes(0, 64, 4)
    packed = _kernel.pack_linear(data, int(Type.Q8_0), 16, 64, 0)
    with pytest.raises(ValueError, match="packed matrix of"):
        _kernel.unpack_linear(packed[:-1], 16, 64, 8)
