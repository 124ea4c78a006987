"""Whatever is out of range in a model or a step is refused by a ValueError that names it, with no memory touched."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gearshift import _kernel

from .tiny_model import QWEN2_LIKE, SHAPE, Runner, arguments, make_tiny_model


@pytest.fixture(scope="module")
def runner() -> Runner:
    return Runner(make_tiny_model(), blocks=4)


GOOD = {"tokens": [1, 2, 3], "positions": [0, 1, 2], "sequences": [0, 0, 0], "tables": [[0, 1]], "chosen": [2]}


def test_the_good_step_is_good(runner: Runner) -> None:
    runner.step(**arguments(**GOOD))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": [1, 100, 3]}, r"tokens\[1\] is 100, expected 0 to 99"),
        ({"tokens": [1, -1, 3]}, r"tokens\[1\] is -1"),
        ({"positions": [2047, 2048, 2049]}, r"positions\[0\] is 2047, but tables has only 2 blocks"),
        ({"positions": [-1, 0, 1]}, r"positions\[0\] is -1"),
        ({"positions": [5000, 5001, 5002]}, r"positions\[0\] is 5000, expected 0 to 2047"),
        ({"positions": [0, 1, 1]}, r"positions\[2\] is 1, expected 2"),
        ({"positions": [0, 2, 3]}, r"positions\[1\] is 2, expected 1"),
        ({"positions": [0, 1]}, "positions has 2 entries, expected 3"),
        ({"sequences": [0, 1, 0]}, r"sequences\[1\] is 1, expected a row of tables, 0 to 0"),
        ({"sequences": [0, -1, 0]}, r"sequences\[1\] is -1"),
        ({"tables": [[4, 1]]}, r"tables\[0\]\[0\] is 4, expected a block of the cache, 0 to 3"),
        ({"tables": [[-1, 1]]}, r"tables\[0\]\[0\] is -1"),
        ({"tables": [[0, -1]], "positions": [31, 32, 33]}, r"tables\[0\]\[1\] is -1"),
        ({"tables": np.zeros((1, 0))}, "tables has only 0 blocks"),
        ({"tables": [[0, 1], [0, 2]], "sequences": [0, 0, 1], "positions": [0, 1, 1]}, "same cache slot"),
        ({"chosen": [3]}, r"chosen\[0\] is 3, expected a row, 0 to 2"),
        ({"chosen": [-1]}, r"chosen\[0\] is -1"),
        ({"chosen": [2, 1]}, r"chosen\[1\] is 1, expected more than the one before"),
        ({"chosen": [1, 1]}, r"chosen\[1\] is 1"),
    ],
)
def test_rows_out_of_range_are_named(runner: Runner, change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        runner.step(**arguments(**{**GOOD, **change}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": np.array([-1], np.float32)}, r"temperature\[0\] is -1"),
        ({"temperature": np.array([np.nan], np.float32)}, r"temperature\[0\] is nan"),
        ({"top_k": np.array([-1], np.int32)}, r"top_k\[0\] is -1"),
        ({"top_p": np.array([np.inf], np.float32)}, r"top_p\[0\] is inf"),
        ({"repetition_penalty": np.array([0], np.float32)}, r"repetition_penalty\[0\] is 0"),
        ({"seed": np.array([1, 2], np.uint64)}, "seed has 2 entries, expected 1"),
        ({"count_offsets": np.array([0], np.int32)}, "count_offsets has 1 entries, expected 2"),
        ({"count_offsets": np.array([1, 0], np.int32)}, r"count_offsets\[0\] is 1, expected 0"),
        ({"count_offsets": np.array([0, -1], np.int32)}, r"count_offsets\[1\] is -1"),
        ({"count_offsets": np.array([0, 1], np.int32)}, "count_offsets ends with 1, expected 0"),
        (
            {
                "count_offsets": np.array([0, 1], np.int32),
                "count_ids": np.array([100], np.int32),
                "count_values": np.array([1], np.int32),
            },
            r"count_ids\[0\] is 100",
        ),
        ({"count_ids": np.array([1], np.int32)}, "count_values has 0 entries, expected 1"),
        (
            {
                "bias_offsets": np.array([0, 1], np.int32),
                "bias_ids": np.array([-1], np.int32),
                "bias_values": np.array([1], np.float32),
            },
            r"bias_ids\[0\] is -1",
        ),
        ({"mask_index": np.array([0], np.int32)}, r"mask_index\[0\] is 0"),
        ({"masks": np.zeros((1, 3), np.uint32)}, "masks has 3 words per row, expected 4"),
        ({"top_logprobs": 21}, "top_logprobs is 21, expected 0 to 20"),
        ({"logits": np.zeros((1, 99), np.float32)}, "logits has 99 columns, expected 100"),
        ({"logits": np.zeros((2, 100), np.float32)}, "logits has 2 entries, expected 1"),
    ],
)
def test_parameters_out_of_range_are_named(runner: Runner, change: dict[str, object], message: str) -> None:
    step = {**arguments(**GOOD), **change}
    with pytest.raises(ValueError, match=message):
        runner.model.step(runner.cache, runner.threads, **step)  # type: ignore[arg-type]


def test_a_cache_of_another_model_is_refused(runner: Runner) -> None:
    other = _kernel.Cache(make_tiny_model(QWEN2_LIKE).load(), 4)
    third = _kernel.Cache(make_tiny_model(replace(SHAPE, layers=1)).load(), 4)
    runner.model.step(other, runner.threads, **arguments(**GOOD))  # type: ignore[arg-type]  # same layout: fine
    with pytest.raises(ValueError, match="made for another model"):
        runner.model.step(third, runner.threads, **arguments(**GOOD))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 3}, r"heads \(3\) is not a multiple of kv_heads \(2\)"),
        ({"head_dim": 24}, "head_dim is 24, expected a multiple of 16"),
        ({"head_dim": 512}, "head_dim is 512"),
        ({"layers": 3}, r"tensor blk\.2\.attn_norm\.weight is missing"),
        ({"vocab": 101}, r"tensor token_embd\.weight is 100 x 64, expected 101 x 64"),
        ({"tied_head": False}, r"tensor output\.weight is missing"),
        ({"rope_base": float("nan")}, "rope_base is nan"),
        ({"context": 0}, "context is 0"),
        ({"qk_norm": True}, r"tensor blk\.0\.attn_q_norm\.weight is missing"),
    ],
)
def test_a_shape_that_does_not_fit_the_tensors_is_refused(change: dict[str, object], message: str) -> None:
    tiny = make_tiny_model()
    with pytest.raises(ValueError, match=message):
        _kernel.Model(tiny.weights, {**SHAPE.config(), **change}, tiny.places)  # type: ignore[dict-item]


def test_config_keys_must_be_there_and_be_numbers() -> None:
    tiny = make_tiny_model()
    config = tiny.shape.config()
    del config["rms_eps"]
    with pytest.raises(ValueError, match="the key 'rms_eps' is missing"):
        _kernel.Model(tiny.weights, config, tiny.places)
    for value, message in ((2.5, "whole number"), ("2", "not a number"), (-1, "whole number")):
        with pytest.raises(ValueError, match=f"'layers' is .*{message}"):
            _kernel.Model(tiny.weights, {**SHAPE.config(), "layers": value}, tiny.places)  # type: ignore[dict-item]


def test_tensors_outside_the_mapping_or_misaligned_are_refused() -> None:
    tiny = make_tiny_model()
    name = "blk.0.attn_q.weight"
    offset, size, n_out, n_in, bits = tiny.places[name]
    for place, message in (
        ((len(tiny.weights), size, n_out, n_in, bits), "outside the mapping"),
        ((2**63 - 1, size, n_out, n_in, bits), "outside the mapping"),
        ((offset, 2**62, n_out, n_in, bits), "outside the mapping"),
        ((offset, size - 1, n_out, n_in, bits), name),
        ((offset + 4, size, n_out, n_in, bits), "aligned to 64"),
        ((offset, size, n_out, n_in, 5), "bits is 5"),
        ((offset, size, n_out, n_in, 32), "bits is 32, expected 4 or 8"),
        ((-1, size, n_out, n_in, bits), "out of range"),
        ((offset, size, 2**40, n_in, bits), "out of range"),
        ((offset, size, n_out), "expected \\(offset"),
    ):
        with pytest.raises(ValueError, match=message):
            _kernel.Model(tiny.weights, SHAPE.config(), {**tiny.places, name: place})  # type: ignore[dict-item]


def test_an_unknown_path_is_refused_with_the_list() -> None:
    tiny = make_tiny_model()
    with pytest.raises(ValueError, match=r"'avx1024' is unknown or not granted.*portable"):
        tiny.load("avx1024")
    assert tiny.load().isa == _kernel.isa_paths()[0]
    assert _kernel.isa_paths()[-1] == "portable"
    for isa in _kernel.isa_paths():
        assert tiny.load(isa).isa == isa


@pytest.mark.parametrize("count", [0, -1, 257])
def test_team_sizes_out_of_range_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"1 to 256 threads, not {count}"):
        _kernel.Threads(count)


@pytest.mark.parametrize("blocks", [0, -1, 1 << 25])
def test_cache_sizes_out_of_range_are_refused(runner: Runner, blocks: int) -> None:
    with pytest.raises(ValueError, match="blocks"):
        _kernel.Cache(runner.model, blocks)
