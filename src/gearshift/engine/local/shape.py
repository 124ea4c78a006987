"""The shape of a model as the kernel takes it: plain numbers read from a GGUF file's metadata.

`shape_of` knows the architectures that run and what each of them expects of a file: every number is checked for
sense and every tensor for presence, type and dimensions, so that the kernel receives only what it can run. Nothing
here reads a weight.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np

from gearshift.engine.local.gguf import Gguf, Tensor

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")
"""`general.architecture` of the models that run."""
MATRIX_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")
"""Types that a weight matrix may have."""
VECTOR_TYPES = ("F32", "F16", "BF16")
"""Types that a norm or a bias may have."""

_GEMMA_GLOBAL_EVERY = 6
_GEMMA_LOCAL_ROPE_BASE = 10000.0
_GEMMA_27B_LAYERS = 62


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Dimensions and variants of a Llama-family decoder. `config()` is what the kernel's `Model` receives.

    Attributes:
        layers, d_model, d_ff, heads, kv_heads, head_dim, vocab: sizes.
        context: longest sequence, in tokens.
        rms_eps: epsilon of every RMS norm.
        rope_base: base of the rotary embedding on global layers.
        rope_scale: positions are multiplied by this on global layers (1.0 for none; linear scaling).
        rope_interleaved: rotate pairs (2i, 2i+1) (GGUF `llama` order) instead of (i, i + head_dim / 2).
        sliding_window: positions a local layer looks back on, itself included; 0 when every layer is global.
        global_every: layer i is global when (i + 1) % global_every == 0; 1 when every layer is.
        rope_base_local: base of the rotary embedding on local layers.
        attention_scale: factor on query-key products.
        qkv_bias: whether q, k and v have biases (qwen2).
        qk_norm: whether q and k are RMS-normalised per head (qwen3, gemma3).
        post_norms: whether attention and feed-forward outputs are normalised before the residual sum (gemma3).
        gelu: GeGLU (tanh approximation) instead of SwiGLU.
        embedding_scale: factor on token embeddings (sqrt(d_model) for gemma3, else 1).
        tied_head: the head is `token_embd.weight` itself.
        rope_factors: whether a `rope_freqs.weight` tensor divides the rotary frequencies (llama 3).
    """

    layers: int
    d_model: int
    d_ff: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    rms_eps: float
    rope_base: float
    rope_scale: float
    rope_interleaved: bool
    sliding_window: int
    global_every: int
    rope_base_local: float
    attention_scale: float
    qkv_bias: bool
    qk_norm: bool
    post_norms: bool
    gelu: bool
    embedding_scale: float
    tied_head: bool
    rope_factors: bool

    def config(self) -> dict[str, int | float | bool]:
        """The fields by name."""
        return asdict(self)


def shape_of(gguf: Gguf) -> ModelShape:
    """The shape of a model, every tensor checked.

    Raises:
        BadModelFile: the architecture, a number or a tensor is not one that runs; the message names it.
    """
    shape = _Numbers(gguf).shape()
    _check_tensors(gguf, shape)
    return shape


class _Numbers:
    """Reads one file's numbers under its architecture's prefix."""

    def __init__(self, gguf: Gguf) -> None:
        self._gguf = gguf
        self._name = gguf.text("general.architecture")
        if self._name not in ARCHITECTURES:
            raise gguf.bad(f"architecture {self._name!r} does not run here; these do: {', '.join(ARCHITECTURES)}")

    def shape(self) -> ModelShape:
        gguf, gemma = self._gguf, self._name == "gemma3"
        self._refuse_variants()
        layers = self._size("block_count", 1024)
        d_model = self._size("embedding_length", 1 << 16)
        heads = self._size("attention.head_count", 1024)
        kv_heads = self._size("attention.head_count_kv", 1024, heads)
        if heads % kv_heads:
            raise gguf.bad(f"{heads} query heads do not divide among {kv_heads} key-value heads")
        head_dim = self._size("attention.key_length", 1024, d_model // heads)
        if head_dim % 2:
            raise gguf.bad(f"heads of {head_dim} cannot be rotated in pairs; expected an even number")
        for key in ("attention.value_length", "rope.dimension_count"):
            other = self._size(key, 1024, head_dim)
            if other != head_dim:
                raise gguf.bad(f"{self._key(key)} is {other}; only the head size, here {head_dim}, runs")
        window, every = self._sliding_window()
        scale = 1 / math.sqrt(d_model / heads if gemma and layers == _GEMMA_27B_LAYERS else head_dim)
        return ModelShape(
            layers=layers,
            d_model=d_model,
            d_ff=self._size("feed_forward_length", 1 << 20),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            vocab=self._vocab(d_model),
            context=self._size("context_length", 1 << 24),
            rms_eps=self._positive("attention.layer_norm_rms_epsilon", 1.0),
            rope_base=self._positive("rope.freq_base", 1e12, 10000.0),
            rope_scale=self._rope_scale(),
            rope_interleaved=self._name == "llama",
            sliding_window=window,
            global_every=every,
            rope_base_local=self._positive("rope.freq_base_swa", 1e12, _GEMMA_LOCAL_ROPE_BASE),
            attention_scale=self._positive("attention.scale", 1e6, scale),
            qkv_bias=self._name == "qwen2" or (self._name == "llama" and "blk.0.attn_q.bias" in gguf.tensors),
            qk_norm=self._name in ("qwen3", "gemma3"),
            post_norms=gemma,
            gelu=gemma,
            embedding_scale=math.sqrt(d_model) if gemma else 1.0,
            tied_head="output.weight" not in gguf.tensors,
            rope_factors="rope_freqs.weight" in gguf.tensors,
        )

    def _key(self, name: str) -> str:
        return f"{self._name}.{name}"

    def _refuse_variants(self) -> None:
        """Refuse what would run without an error and answer nonsense."""
        gguf = self._gguf
        if gguf.integer(self._key("expert_count"), 0):
            raise gguf.bad("is a mixture of experts; only dense models run here")
        for name in ("attn_logit_softcapping", "final_logit_softcapping"):
            if gguf.number(self._key(name), 0.0):
                raise gguf.bad(f"{self._key(name)} is set; soft-capped logits do not run here")
        if not gguf.flag(self._key("attention.causal"), True):
            raise gguf.bad("is an embedding model without causal attention; only generating models run here")

    def _size(self, name: str, most: int, default: int | None = None) -> int:
        """A size from 1 to `most`. Some files give one per layer; equal ones are one size."""
        key = self._key(name)
        value = self._gguf.metadata.get(key)
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and len(value) and (value == value[0]).all():
            size = int(value[0])
        elif isinstance(value, np.ndarray):
            raise self._gguf.bad(f"{key} differs between layers; only equal layers run here")
        else:
            size = self._gguf.integer(key, default)
        if not 1 <= size <= most:
            raise self._gguf.bad(f"{key} is {size}; expected 1 to {most}")
        return size

    def _positive(self, name: str, most: float, default: float | None = None) -> float:
        value = self._gguf.number(self._key(name), default)
        if not 0 < value <= most:
            raise self._gguf.bad(f"{self._key(name)} is {value}; expected more than 0 and at most {most:g}")
        return value

    def _rope_scale(self) -> float:
        kind = self._gguf.text(self._key("rope.scaling.type"), "none")
        if kind == "none":
            return 1.0
        if kind != "linear":
            raise self._gguf.bad(f"{self._key('rope.scaling.type')} is {kind!r}; these run: none, linear")
        return 1 / self._positive("rope.scaling.factor", 1e6)

    def _sliding_window(self) -> tuple[int, int]:
        """Window and period of global layers. Only gemma3 has local layers; as in llama.cpp, a window in a
        `llama` or `qwen` file is not used."""
        if self._name != "gemma3" or not self._gguf.integer(self._key("attention.sliding_window"), 0):
            return 0, 1
        window = self._size("attention.sliding_window", 1 << 24)
        every = self._size("attention.sliding_window_pattern", 1024, _GEMMA_GLOBAL_EVERY)
        return (window, every) if every > 1 else (0, 1)

    def _vocab(self, d_model: int) -> int:
        """The vocabulary's size, as the embedding has it."""
        gguf = self._gguf
        table = gguf.tensors.get("token_embd.weight")
        if table is None:
            raise gguf.bad("tensor token_embd.weight is missing")
        if len(table.dims) != 2:
            raise gguf.bad(f"tensor token_embd.weight has dimensions {list(table.dims)}; expected [{d_model}, tokens]")
        tokens = len(gguf.strings("tokenizer.ggml.tokens"))
        if tokens != table.dims[1]:
            raise gguf.bad(f"{tokens} tokens are listed, but token_embd.weight has {table.dims[1]} rows")
        return tokens


def tensor_dims(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    """Every tensor of a model of this shape, with its dimensions in GGUF order (inputs first)."""
    model, ff, head = shape.d_model, shape.d_ff, shape.head_dim
    query, key = shape.heads * head, shape.kv_heads * head
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (model,),
        "attn_q.weight": (model, query),
        "attn_k.weight": (model, key),
        "attn_v.weight": (model, key),
        "attn_output.weight": (query, model),
        "ffn_norm.weight": (model,),
        "ffn_gate.weight": (model, ff),
        "ffn_up.weight": (model, ff),
        "ffn_down.weight": (ff, model),
    }
    if shape.qkv_bias:
        layer |= {"attn_q.bias": (query,), "attn_k.bias": (key,), "attn_v.bias": (key,)}
    if shape.qk_norm:
        layer |= {"attn_q_norm.weight": (head,), "attn_k_norm.weight": (head,)}
    if shape.post_norms:
        layer |= {"post_attention_norm.weight": (model,), "post_ffw_norm.weight": (model,)}
    dims: dict[str, tuple[int, ...]] = {"token_embd.weight": (model, shape.vocab), "output_norm.weight": (model,)}
    if not shape.tied_head:
        dims["output.weight"] = (model, shape.vocab)
    if shape.rope_factors:
        dims["rope_freqs.weight"] = (head // 2,)
    for i in range(shape.layers):
        dims |= {f"blk.{i}.{name}": size for name, size in layer.items()}
    return dims


def _check_tensors(gguf: Gguf, shape: ModelShape) -> None:
    wanted = tensor_dims(shape)
    for name, dims in wanted.items():
        tensor = gguf.tensors.get(name)
        if tensor is None:
            raise gguf.bad(f"tensor {name} is missing")
        _check_tensor(gguf, tensor, dims)
    extra = [name for name in gguf.tensors if name not in wanted]
    if extra:
        # An unknown tensor means arithmetic that the kernel would leave out.
        raise gguf.bad(f"tensor {extra[0]} (of {len(extra)} such) belongs to a variant that does not run here")


def _check_tensor(gguf: Gguf, tensor: Tensor, dims: tuple[int, ...]) -> None:
    if tensor.dims != dims:
        raise gguf.bad(f"tensor {tensor.name} has dimensions {list(tensor.dims)}; expected {list(dims)}")
    allowed = MATRIX_TYPES if len(dims) == 2 else VECTOR_TYPES
    if tensor.type.name not in allowed:
        raise gguf.bad(f"tensor {tensor.name} has type {tensor.type.name}; these run: {', '.join(allowed)}")
