"""Which files `shape_of` lets through, and that it names what it refuses."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType

from gearshift.engine.local.gguf import BadModelFile, Gguf
from gearshift.engine.local.shape import ARCHITECTURES, ModelShape, shape_of
from tests.engine.local.small_files import HEAD, MODEL, TOKENS, write_model


def shape(path: Path) -> ModelShape:
    with Gguf.open(path) as gguf:
        return shape_of(gguf)


def test_llama(tmp_path: Path) -> None:
    found = shape(write_model(tmp_path / "m.gguf", "llama"))
    assert (found.layers, found.d_model, found.d_ff, found.vocab, found.context) == (2, 64, 128, 320, 512)
    assert (found.heads, found.kv_heads, found.head_dim) == (4, 2, 32)
    assert (found.rope_interleaved, found.rope_base, found.rope_scale) == (True, 10000.0, 1.0)
    assert (found.sliding_window, found.global_every) == (0, 1)
    assert found.attention_scale == pytest.approx(1 / math.sqrt(32))
    assert (found.qkv_bias, found.qk_norm, found.post_norms, found.gelu) == (False, False, False, False)
    assert (found.embedding_scale, found.tied_head, found.rope_factors) == (1.0, True, False)


def test_llama_with_a_head_of_its_own_and_rotary_factors(tmp_path: Path) -> None:
    extra = {"output.weight": (TOKENS, MODEL), "rope_freqs.weight": (HEAD // 2,)}
    found = shape(write_model(tmp_path / "m.gguf", "llama", extra=extra))
    assert (found.tied_head, found.rope_factors) == (False, True)


def test_qwen2_has_biases(tmp_path: Path) -> None:
    found = shape(write_model(tmp_path / "m.gguf", "qwen2"))
    assert (found.qkv_bias, found.qk_norm, found.rope_interleaved) == (True, False, False)


def test_qwen3_normalises_queries_and_keys(tmp_path: Path) -> None:
    found = shape(write_model(tmp_path / "m.gguf", "qwen3"))
    assert (found.qkv_bias, found.qk_norm, found.post_norms) == (False, True, False)


def test_gemma3(tmp_path: Path) -> None:
    numbers = {
        "attention.sliding_window": 48,
        "rope.freq_base": 1e6,
        "rope.scaling.type": "linear",
        "rope.scaling.factor": 8.0,
    }
    found = shape(write_model(tmp_path / "m.gguf", "gemma3", numbers=numbers))
    assert (found.sliding_window, found.global_every, found.rope_base_local) == (48, 6, 10000.0)
    assert (found.rope_base, found.rope_scale) == (1e6, 0.125)
    assert (found.qk_norm, found.post_norms, found.gelu) == (True, True, True)
    assert found.embedding_scale == 8.0


def test_equal_sizes_per_layer_are_one_size(tmp_path: Path) -> None:
    assert shape(write_model(tmp_path / "m.gguf", numbers={"attention.head_count_kv": [2, 2]})).kv_heads == 2
    with pytest.raises(BadModelFile, match="head_count_kv differs between layers"):
        shape(write_model(tmp_path / "n.gguf", numbers={"attention.head_count_kv": [2, 1]}))


def test_other_architectures_are_named_with_what_runs(tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match="'mamba' does not run here; these do: " + ", ".join(ARCHITECTURES)):
        shape(write_model(tmp_path / "m.gguf", "mamba"))


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({"block_count": 0}, "block_count is 0; expected 1 to"),
        ({"block_count": 3}, r"tensor blk\.2\.attn_norm\.weight is missing"),
        ({"block_count": 1}, r"tensor blk\.1\..* belongs to a variant"),
        ({"block_count": 2.0}, "block_count is 2.0; expected an integer"),
        ({"block_count": "2"}, "expected an integer"),
        ({"embedding_length": 2**31}, "embedding_length is 2147483648"),
        ({"embedding_length": 96}, r"dimensions \[64, 320\]; expected \[96, 320\]"),
        ({"attention.head_count_kv": 3}, "do not divide"),
        ({"attention.key_length": 31}, "expected an even number"),
        ({"attention.value_length": 16}, "value_length is 16"),
        ({"rope.dimension_count": 16}, "dimension_count is 16"),
        ({"attention.layer_norm_rms_epsilon": float("nan")}, "finite"),
        ({"attention.layer_norm_rms_epsilon": -1.0}, "expected more than 0"),
        ({"rope.freq_base": 0.0}, "expected more than 0"),
        ({"rope.scaling.type": "yarn"}, "'yarn'; these run: none, linear"),
        ({"expert_count": 8}, "mixture of experts"),
        ({"final_logit_softcapping": 30.0}, "soft-capped"),
        ({"attention.causal": False}, "embedding model"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(
    numbers: dict[str, int | float | str | bool], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(BadModelFile, match=reason):
        shape(write_model(tmp_path / "m.gguf", numbers=numbers))


def test_tensors_are_checked(tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match=r"tensor blk\.1\.ffn_up\.weight is missing"):
        shape(write_model(tmp_path / "a.gguf", without=("blk.1.ffn_up.weight",)))
    with pytest.raises(BadModelFile, match=r"ffn_up\.weight has dimensions \[64, 96\]; expected \[64, 128\]"):
        shape(write_model(tmp_path / "b.gguf", extra={"blk.1.ffn_up.weight": (96, 64)}))
    with pytest.raises(BadModelFile, match=r"blk\.0\.attn_output\.bias"):
        shape(write_model(tmp_path / "c.gguf", extra={"blk.0.attn_output.bias": (64,)}))
    with pytest.raises(BadModelFile, match=r"320 tokens are listed, but token_embd\.weight has 321"):
        shape(write_model(tmp_path / "d.gguf", extra={"token_embd.weight": (321, 64)}))
    with pytest.raises(BadModelFile, match="has type Q8_0; these run: F32, F16, BF16"):
        shape(write_model(tmp_path / "e.gguf", types={"output_norm.weight": GGMLQuantizationType.Q8_0}))


def test_a_type_that_does_not_run_is_named(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", types={"blk.0.ffn_up.weight": GGMLQuantizationType.F64})
    with pytest.raises(BadModelFile, match="has type F64; these run: F32, F16, BF16, Q8_0"):
        shape(path)
