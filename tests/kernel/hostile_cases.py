"""Wrong input for the kernel's binding, run in a process of its own: `python -m tests.kernel.hostile_cases MODEL.gguf`.

For every case a line `name<TAB>outcome` is printed before the next begins, so that a crash names its case. The outcome
is the exception's type and message, or `accepted`. After each case a good step must still give the bits of the first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift import _kernel
from tests.kernel.running import Loaded

TOKENS = (5, 9, 2, 7)
BLOCKS = 4


class Subject:
    """A sound model with a cache, and the arguments of a sound step of four rows that all choose."""

    def __init__(self, path: Path) -> None:
        self.loaded = Loaded.open(path)
        self.model = self.loaded.model()
        self.cache = _kernel.Cache(self.model, BLOCKS)
        self.threads = _kernel.Threads(2)
        self.vocab = self.loaded.shape.vocab

    def arguments(self) -> dict[str, Any]:
        rows = len(TOKENS)
        return {
            "tokens": np.array(TOKENS, np.int32),
            "positions": np.arange(rows, dtype=np.int32),
            "sequences": np.zeros(rows, np.int32),
            "tables": np.array([[2, 0], [1, 3]], np.int32),
            "chosen": np.arange(rows, dtype=np.int32),
            "temperature": np.zeros(rows, np.float32),
            "top_k": np.zeros(rows, np.int32),
            "top_p": np.ones(rows, np.float32),
            "min_p": np.zeros(rows, np.float32),
            "seed": np.zeros(rows, np.uint64),
            "choice": np.zeros(rows, np.int32),
            "presence_penalty": np.zeros(rows, np.float32),
            "frequency_penalty": np.zeros(rows, np.float32),
            "repetition_penalty": np.ones(rows, np.float32),
            "count_offsets": np.zeros(rows + 1, np.int32),
            "count_ids": np.zeros(0, np.int32),
            "count_values": np.zeros(0, np.int32),
            "bias_offsets": np.zeros(rows + 1, np.int32),
            "bias_ids": np.zeros(0, np.int32),
            "bias_values": np.zeros(0, np.float32),
            "mask_index": np.full(rows, -1, np.int32),
            "masks": np.zeros((1, -(-self.vocab // 32)), np.uint32),
            "top_logprobs": 0,
            "logits": np.zeros((rows, self.vocab), np.float32),
        }

    def step(self, **changes: Any) -> bytes:
        """Bits of the logits of a step with some arguments changed."""
        arguments = self.arguments() | changes
        self.model.step(self.cache, self.threads, **arguments)
        return arguments["logits"].tobytes() if arguments["logits"] is not None else b""

    def build(
        self,
        mapping: NDArray[np.uint8] | None = None,
        config: dict[str, Any] | None = None,
        tensors: dict[str, Any] | None = None,
    ) -> None:
        """A model with some parts changed; a step over it when it is accepted, which must then not crash."""
        weights = self.loaded.weights
        model = _kernel.Model(
            weights.mapping if mapping is None else mapping,
            self.loaded.shape.config() | (config or {}),
            dict(weights.tensors) | (tensors or {}),
        )
        arguments = self.arguments()
        arguments["logits"] = None
        model.step(_kernel.Cache(model, BLOCKS), self.threads, **arguments)


Case = Callable[[Subject], object]
CASES: dict[str, Case] = {}


def i32(*values: int) -> NDArray[np.int32]:
    return np.array(values, np.int32)


def changed(values: NDArray[Any], at: int, value: float) -> NDArray[Any]:
    copy = values.copy()
    copy[at] = value
    return copy


def step_case(name: str, **changes: Any) -> None:
    CASES[f"step: {name}"] = lambda subject: subject.step(**changes)


def element_case(argument: str, at: int, value: float) -> None:
    """One element of an argument replaced."""

    def run(subject: Subject) -> bytes:
        return subject.step(**{argument: changed(subject.arguments()[argument], at, value)})

    CASES[f"step: {argument}[{at}] = {value}"] = run


LARGEST, SMALLEST = 2**31 - 1, -(2**31)

for wrong in (-1, 1 << 20, LARGEST, SMALLEST):
    element_case("tokens", 1, wrong)
    element_case("positions", 1, wrong)
    element_case("sequences", 1, wrong)
    element_case("chosen", 3, wrong)
    element_case("count_offsets", 4, wrong)
    element_case("bias_offsets", 4, wrong)
for wrong in (-2, 1, LARGEST, SMALLEST):
    element_case("mask_index", 2, wrong)
for wrong in (-1, SMALLEST):
    element_case("top_k", 0, wrong)
for bad in (float("nan"), float("inf"), -1.0):
    for each in ("temperature", "top_p", "min_p", "repetition_penalty"):
        element_case(each, 2, bad)
for bad in (float("nan"), float("inf"), float("-inf")):
    for each in ("presence_penalty", "frequency_penalty"):
        element_case(each, 2, bad)
element_case("repetition_penalty", 2, 0.0)
element_case("chosen", 2, 0)

step_case("positions with a gap", positions=i32(0, 1, 3, 4))
step_case("the same position twice", positions=i32(0, 1, 1, 2))
step_case("positions backwards", positions=i32(3, 2, 1, 0))
step_case("beyond the table", positions=i32(64, 65, 66, 67))
step_case("block of another cache", tables=i32(BLOCKS, 0, 1, 3).reshape(2, 2))
step_case("negative block", tables=i32(-1, 0, 1, 3).reshape(2, 2))
step_case("hugely negative block", tables=i32(SMALLEST, 0, 1, 3).reshape(2, 2))
step_case("missing block before the position", positions=i32(32, 33, 34, 35), tables=i32(-1, 0, 1, 3).reshape(2, 2))
step_case(
    "two sequences write one block",
    sequences=i32(0, 1, 0, 1),
    positions=i32(0, 0, 1, 1),
    tables=i32(1, 1).reshape(2, 1),
)
step_case("tables without rows", tables=np.zeros((0, 2), np.int32))
step_case("tables without columns", tables=np.zeros((2, 0), np.int32))
step_case("tables of one dimension", tables=i32(0, 1))
step_case("tables not contiguous", tables=np.zeros((4, 4), np.int32)[::2, ::2])
step_case("fewer positions than tokens", positions=i32(0, 1))
step_case("more sequences than tokens", sequences=np.zeros(9, np.int32))
step_case("tokens of 64 bits", tokens=np.array(TOKENS, np.int64))
step_case("tokens of floats", tokens=np.array(TOKENS, np.float32))
step_case("tokens not an array", tokens="1234")
step_case("tokens None", tokens=None)
step_case("no tokens but choices", tokens=i32(), positions=i32(), sequences=i32())
step_case("short temperature", temperature=np.zeros(1, np.float32))
step_case("short seed", seed=np.zeros(1, np.uint64))
step_case("signed seed", seed=np.zeros(4, np.int64))
step_case("short count_offsets", count_offsets=np.zeros(4, np.int32))
step_case("decreasing count_offsets", count_offsets=i32(0, 2, 1, 2, 2), count_ids=i32(1, 2), count_values=i32(1, 1))
step_case(
    "count id beyond the vocabulary", count_offsets=i32(0, 1, 1, 1, 1), count_ids=i32(1 << 20), count_values=i32(1)
)
step_case("negative count id", count_offsets=i32(0, 1, 1, 1, 1), count_ids=i32(-1), count_values=i32(1))
step_case("negative count value", count_offsets=i32(0, 1, 1, 1, 1), count_ids=i32(1), count_values=i32(-1))
step_case("count values missing", count_offsets=i32(0, 1, 1, 1, 1), count_ids=i32(1))
step_case(
    "bias id beyond the vocabulary",
    bias_offsets=i32(0, 1, 1, 1, 1),
    bias_ids=i32(1 << 20),
    bias_values=np.ones(1, np.float32),
)
step_case("negative bias id", bias_offsets=i32(0, 1, 1, 1, 1), bias_ids=i32(-1), bias_values=np.ones(1, np.float32))
step_case("masks too narrow", masks=np.zeros((1, 1), np.uint32), mask_index=i32(0, 0, 0, 0))
step_case("masks signed", masks=np.zeros((1, 16), np.int32))
step_case("no masks but an index", masks=np.zeros((0, 16), np.uint32), mask_index=i32(0, 0, 0, 0))
step_case("too many alternatives", top_logprobs=_kernel.MAX_TOP_LOGPROBS + 1)
step_case("negative alternatives", top_logprobs=-1)
step_case("logits too narrow", logits=np.zeros((4, 7), np.float32))
step_case("too few logits", logits=np.zeros((3, 512), np.float32))
step_case("logits of float64", logits=np.zeros((4, 512), np.float64))
step_case("logits read-only", logits=np.frombuffer(bytes(4 * 512 * 4), np.float32).reshape(4, 512))

for threads in (0, -1, 257, LARGEST):
    CASES[f"threads: {threads}"] = lambda subject, count=threads: _kernel.Threads(count)
for blocks in (0, -1, LARGEST):
    CASES[f"cache: {blocks} blocks"] = lambda subject, count=blocks: _kernel.Cache(subject.model, count)


def build_case(name: str, **changes: Any) -> None:
    CASES[f"model: {name}"] = lambda subject: subject.build(**changes)


def tensor_case(tensor: str, at: int, value: Any) -> None:
    """One of a tensor's five numbers (offset, bytes, n_out, n_in, bits) replaced."""

    def run(subject: Subject) -> None:
        entry = list(subject.loaded.weights.tensors[tensor])
        entry[at] = value
        subject.build(tensors={tensor: tuple(entry)})

    CASES[f"model: {tensor}[{at}] = {value}"] = run


for each in ("token_embd.weight", "blk.1.ffn_down.weight", "output_norm.weight"):
    for number in (-1, 1 << 40, 2**63 - 1, 2**64, "x", None):
        tensor_case(each, 0, number)
    for number in (-1, 0, 1, 2**63 - 1):
        tensor_case(each, 1, number)
    for number in (-1, 0, 3, LARGEST, 2**31):
        tensor_case(each, 2, number)
        tensor_case(each, 3, number)
    for number in (-1, 0, 5, 16):
        tensor_case(each, 4, number)
tensor_case("token_embd.weight", 0, 4097)  # not aligned
tensor_case("output_norm.weight", 0, 4098)
build_case("tensor of four numbers", tensors={"output_norm.weight": (0, 1024, 1, 256)})
build_case("tensor of nothing", tensors={"output_norm.weight": ()})
build_case("tensor None", tensors={"output_norm.weight": None})
build_case("empty mapping", mapping=np.zeros(0, np.uint8))


def truncated(subject: Subject) -> None:
    subject.build(mapping=subject.loaded.weights.mapping[:-4096])


def missing_tensor(subject: Subject) -> None:
    tensors = dict(subject.loaded.weights.tensors)
    del tensors["blk.1.attn_k.weight"]
    _kernel.Model(subject.loaded.weights.mapping, subject.loaded.shape.config(), tensors)


def missing_key(subject: Subject) -> None:
    config = subject.loaded.shape.config()
    del config["heads"]
    _kernel.Model(subject.loaded.weights.mapping, config, dict(subject.loaded.weights.tensors))


CASES.update(
    {
        "model: truncated mapping": truncated,
        "model: missing tensor": missing_tensor,
        "model: missing key": missing_key,
    }
)

for field in ("layers", "d_model", "d_ff", "heads", "kv_heads", "head_dim", "vocab", "context", "global_every"):
    for number in (0, -1, 7, LARGEST, 2**40, float("nan"), "x", None):
        if (field, number) not in {("context", 7), ("global_every", 7)}:
            build_case(f"{field} = {number}", config={field: number})
for field in ("rope_base", "rope_scale", "rope_base_local", "attention_scale", "embedding_scale"):
    for number in (0.0, -1.0, float("nan"), float("inf")):
        build_case(f"{field} = {number}", config={field: number})
for number in (-1.0, float("nan"), float("inf")):
    build_case(f"rms_eps = {number}", config={"rms_eps": number})
for field in ("qkv_bias", "qk_norm", "post_norms", "rope_factors"):
    build_case(f"{field} without its tensors", config={field: True})
build_case("tied_head without a head", config={"tied_head": False})
build_case("flag of 2", config={"gelu": 2})


def wrong_cache(subject: Subject) -> None:
    """A cache that was made for a model with fewer layers."""
    config = subject.loaded.shape.config() | {"layers": 1}
    other = _kernel.Model(subject.loaded.weights.mapping, config, dict(subject.loaded.weights.tensors))
    subject.model.step(_kernel.Cache(other, BLOCKS), subject.threads, **subject.arguments())


CASES["step: cache of another model"] = wrong_cache

for kind, size, count in ((2, 17, 32), (12, 143, 256), (0, 3, 1), (8, 0, 32), (99, 64, 32), (-1, 64, 32), (2, 64, -32)):
    CASES[f"dequantize: type {kind}, {size} bytes for {count}"] = lambda subject, k=kind, s=size, c=count: (
        _kernel.dequantize(bytes(s), k, c)
    )
for n_out, n_in, bits in (
    (0, 32, 4),
    (16, 0, 4),
    (-1, 32, 4),
    (16, 33, 4),
    (16, 32, 5),
    (LARGEST, LARGEST, 4),
    (2**40, 32, 8),
):
    CASES[f"pack_linear: {n_out} x {n_in}, {bits} bits"] = lambda subject, o=n_out, i=n_in, b=bits: _kernel.pack_linear(
        bytes(1 << 12), 2, o, i, b
    )
    CASES[f"unpack_linear: {n_out} x {n_in}, {bits} bits"] = lambda subject, o=n_out, i=n_in, b=bits: (
        _kernel.unpack_linear(bytes(1 << 12), o, i, b)
    )


def main() -> None:
    subject = Subject(Path(sys.argv[1]))
    good = subject.step()
    for name, case in CASES.items():
        print(name, end="\t", flush=True)
        try:
            case(subject)
            outcome = "accepted"
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
        if subject.step() != good:
            outcome += " AND THE NEXT GOOD STEP GAVE OTHER BITS"
        print(outcome, flush=True)


if __name__ == "__main__":
    main()
