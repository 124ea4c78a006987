"""The kernel's contract: one forward pass over a batch of rows. Built from `kernel/` at the repository's root.

A row is one token position of one sequence. Keys and values live in a `Cache` of blocks of `BLOCK_TOKENS`
positions; block tables are handed in from above. Rows of one sequence in one step have consecutive positions,
and every earlier position is either in the cache or an earlier row of the same step. A row's result is the same
bits alone or among any others, in any row position, with any number of threads, on every ISA path.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

BLOCK_TOKENS: int
"""Positions per cache block (32)."""
MAX_TOP_LOGPROBS: int
"""Most alternatives reported per chosen token (20)."""
FORMAT_VERSION: int
"""Version of the packed weight layout: part of the name of packed files."""

def isa_paths() -> list[str]:
    """ISA paths that the processor and the operating system grant, best first:
    of `amx`, `avx512`, `avx2`, `portable`."""

def dequantize(data: memoryview | bytes | NDArray[np.uint8], ggml_type: int, count: int) -> NDArray[np.float32]:
    """`count` weights of a GGUF tensor as float32. Raises ValueError for an unknown type or too little data."""

def pack_linear(
    data: memoryview | bytes | NDArray[np.uint8], ggml_type: int, n_out: int, n_in: int, bits: int, threads: int = 2
) -> bytes:
    """A GGUF matrix of `n_out` rows of `n_in` weights in the packed layout (see kernel/linear.h).

    bits: 4 or 8, or 0 to choose by the source type. Raises ValueError for shapes or types that do not fit."""

def packed_bytes(n_out: int, n_in: int, bits: int) -> int:
    """Size in bytes of what `pack_linear` returns."""

def unpack_linear(packed: memoryview | bytes, n_out: int, n_in: int, bits: int) -> NDArray[np.float32]:
    """The weights that a packed matrix stands for, float32 [n_out, n_in]; for tests and error measurements."""

def default_bits(ggml_type: int) -> int:
    """The bits that `pack_linear` chooses for a source type."""

def choose_rows(
    logits: NDArray[np.float32],
    *,
    temperature: NDArray[np.float32],
    top_k: NDArray[np.int32],
    top_p: NDArray[np.float32],
    min_p: NDArray[np.float32],
    seed: NDArray[np.uint64],
    choice: NDArray[np.int32],
    position: NDArray[np.int32],
    presence_penalty: NDArray[np.float32],
    frequency_penalty: NDArray[np.float32],
    repetition_penalty: NDArray[np.float32],
    count_offsets: NDArray[np.int32],
    count_ids: NDArray[np.int32],
    count_values: NDArray[np.int32],
    bias_offsets: NDArray[np.int32],
    bias_ids: NDArray[np.int32],
    bias_values: NDArray[np.float32],
    mask_index: NDArray[np.int32],
    masks: NDArray[np.uint32],
    top_logprobs: int = 0,
    wide: bool = True,
) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int32], NDArray[np.float32]]:
    """The choice of `Model.step` alone, from logits [C, vocab]; for tests and measurements. The rule is in
    kernel/choose.h. Arguments and results as in `Model.step`; position: [C], of the token to be chosen.

    wide: False forgoes AVX2 (same bits). A row that allows no token, or holds NaN or +inf, gets id -1 and NaN."""

class Threads:
    """A team of kernel threads, shared by all models of a process. The calling thread is one of them."""

    def __init__(self, count: int) -> None: ...
    @property
    def count(self) -> int: ...

class Model:
    """A model over mapped packed weights. Keeps a reference to `mapping`."""

    def __init__(
        self,
        mapping: memoryview | NDArray[np.uint8],
        config: Mapping[str, int | float | bool],
        tensors: Mapping[str, tuple[int, int, int, int, int]],
        isa: str = "",
    ) -> None:
        """config: see `ModelShape` in engine/local/shape.py, one key per field.
        tensors: GGUF name -> (offset, bytes, n_out, n_in, bits); bits 32 is plain float32 of n_out * n_in.
        isa: path to use, empty for the best granted. Raises ValueError for anything missing or out of bounds."""

    @property
    def isa(self) -> str: ...
    @property
    def cache_bytes_per_token(self) -> int: ...
    def step(
        self,
        cache: Cache,
        threads: Threads,
        tokens: NDArray[np.int32],
        positions: NDArray[np.int32],
        sequences: NDArray[np.int32],
        tables: NDArray[np.int32],
        chosen: NDArray[np.int32],
        temperature: NDArray[np.float32],
        top_k: NDArray[np.int32],
        top_p: NDArray[np.float32],
        min_p: NDArray[np.float32],
        seed: NDArray[np.uint64],
        choice: NDArray[np.int32],
        presence_penalty: NDArray[np.float32],
        frequency_penalty: NDArray[np.float32],
        repetition_penalty: NDArray[np.float32],
        count_offsets: NDArray[np.int32],
        count_ids: NDArray[np.int32],
        count_values: NDArray[np.int32],
        bias_offsets: NDArray[np.int32],
        bias_ids: NDArray[np.int32],
        bias_values: NDArray[np.float32],
        mask_index: NDArray[np.int32],
        masks: NDArray[np.uint32],
        top_logprobs: int = 0,
        logits: NDArray[np.float32] | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int32], NDArray[np.float32]]:
        """Run R rows and choose a token after C of them. Releases the GIL.

        tokens, positions: [R]. sequences: [R], row of `tables` that each row's sequence uses.
        tables: [S, B] cache block of every BLOCK_TOKENS positions, -1 where unused.
        chosen: [C] ascending row indexes after which a token is chosen; the arrays that follow are [C], or CSR with
        offsets [C + 1]. The noise of a choice is keyed by (seed, choice, position of the new token, token id).
        counts: how often token ids occur in the text so far: `count_values` packs occurrences in the answer
        (low 24 bits) and bit 24 set when the id occurs in the prompt (used by repetition_penalty only).
        mask_index: [C] row of `masks` [M, ceil(vocab / 32)] whose set bits are allowed, or -1.
        top_logprobs: width T of the alternatives to return (0 to MAX_TOP_LOGPROBS).
        logits: [C, vocab] to fill with the raw logits, or None.
        Returns ids [C], log-probabilities [C] under the raw logits, and alternatives: ids [C, T], log-probs [C, T].
        Raises ValueError for anything out of range."""

class Cache:
    """Keys and values of `blocks` blocks of one model, 8-bit."""

    def __init__(self, model: Model, blocks: int) -> None: ...
    @property
    def blocks(self) -> int: ...
    @property
    def bytes(self) -> int: ...
