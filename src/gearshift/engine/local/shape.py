"""The shape of a model as the kernel takes it: plain numbers read from a GGUF file's metadata."""

from __future__ import annotations

from dataclasses import asdict, dataclass


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
