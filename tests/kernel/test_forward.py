"""The forward pass against itself on tiny random models: a row's bits in any company, on every path."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from numpy.typing import NDArray

from gearshift import _kernel
from gearshift.engine.local.shape import ModelShape

from .tiny_model import GEMMA_LIKE, QWEN2_LIKE, SHAPE, Runner, arguments, make_tiny_model

SHAPES = {"llama": SHAPE, "gemma3": GEMMA_LIKE, "qwen2": QWEN2_LIKE}
LENGTH = 150  # crosses a chunk of 128 positions and, for gemma3, the window of 40


def alone(runner: Runner, tokens: NDArray[np.int64], table: list[int]) -> NDArray[np.float32]:
    """Logits of every position, one row a step."""
    rows = [runner.step(**arguments([token], [i], [0], [table], [0]))[1][0] for i, token in enumerate(tokens.tolist())]
    return np.array(rows)


def assert_same_bits(a: NDArray[np.float32], b: NDArray[np.float32]) -> None:
    assert np.all(np.isfinite(a))
    np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("bits", [4, 8])
def test_any_chunking_threads_and_path_give_the_bits_of_single_rows(shape: ModelShape, bits: int) -> None:
    tiny = make_tiny_model(shape, bits=bits)
    rng = np.random.default_rng(3)
    tokens = rng.integers(0, shape.vocab, LENGTH)
    table = rng.permutation(64)[: LENGTH // 32 + 1].tolist()
    expected = alone(Runner(tiny), tokens, table)
    assert np.ptp(expected) > 1
    for isa in _kernel.isa_paths():
        for threads in (1, 2, 3):
            runner = Runner(tiny, isa, threads)
            done = 0
            while done < LENGTH:
                count = min(int(rng.integers(1, 90)), LENGTH - done)
                positions = range(done, done + count)
                step = arguments(tokens[done : done + count], positions, [0] * count, [table], range(count))
                assert_same_bits(runner.step(**step)[1], expected[done : done + count])
                done += count


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_rows_of_many_sequences_do_not_touch_each_other(shape: ModelShape) -> None:
    tiny = make_tiny_model(shape)
    rng = np.random.default_rng(4)
    tables = rng.permutation(64)[:20].reshape(4, 5)
    texts = [rng.integers(0, shape.vocab, LENGTH) for _ in tables]
    expected = [alone(Runner(tiny), text, table.tolist()) for text, table in zip(texts, tables, strict=True)]
    runner = Runner(tiny)
    done = [0] * 4
    while min(done) < LENGTH:
        rows: list[tuple[int, int]] = []
        ends = [min(LENGTH, at + int(rng.integers(0, 30))) for at in done]
        pending = [(s, p) for s in range(4) for p in range(done[s], ends[s])]
        while pending:  # the sequences' rows are shuffled into each other, each in ascending order
            sequence = pending[int(rng.integers(len(pending)))][0]
            row = next(r for r in pending if r[0] == sequence)
            pending.remove(row)
            rows.append(row)
        done = ends
        chosen = [i for i in range(len(rows)) if rng.random() < 0.5]
        step = arguments(
            [texts[s][p] for s, p in rows], [p for _, p in rows], [s for s, _ in rows], tables, np.array(chosen, int)
        )
        ids, logits = runner.step(**step)
        wanted = np.array([expected[rows[i][0]][rows[i][1]] for i in chosen], np.float32).reshape(logits.shape)
        assert_same_bits(logits, wanted)
        np.testing.assert_array_equal(ids, wanted.argmax(axis=1))


def test_what_lies_in_the_cache_beyond_a_sequence_does_not_matter() -> None:
    tiny = make_tiny_model()
    tokens = np.random.default_rng(5).integers(0, SHAPE.vocab, 40)
    fresh, used = Runner(tiny), Runner(tiny)
    other = np.random.default_rng(6).integers(0, SHAPE.vocab, 2048)
    for done in range(0, 2048, 256):
        positions = range(done, done + 256)
        used.step(**arguments(other[done : done + 256], positions, [0] * 256, [range(64)], []))
    assert_same_bits(alone(used, tokens, [9, 3]), alone(fresh, tokens, [9, 3]))


def test_steps_without_rows_or_choices_return_empty_arrays() -> None:
    runner = Runner(make_tiny_model())
    empty = arguments([], [], [], np.zeros((0, 0)), [])
    ids, logprobs, top_ids, top = runner.model.step(runner.cache, runner.threads, **empty, top_logprobs=3)  # type: ignore[arg-type]
    assert ids.shape == logprobs.shape == (0,)
    assert top_ids.shape == top.shape == (0, 3)
    ids, logits = runner.step(**arguments([1, 2], [0, 1], [0, 0], [[0]], []))
    assert ids.shape == (0,)
    assert logits.shape == (0, SHAPE.vocab)


def test_logprobs_and_alternatives_agree_with_the_logits() -> None:
    runner = Runner(make_tiny_model())
    step = arguments([5, 6, 7], [0, 1, 2], [0, 0, 0], [[0]], [0, 2])
    _, logits = runner.step(**step)
    ids, logprobs, top_ids, top = runner.model.step(runner.cache, runner.threads, **step, top_logprobs=4)  # type: ignore[arg-type]
    wide = logits.astype(np.float64)
    expected = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    order = np.argsort(-wide, axis=1)[:, :4]
    np.testing.assert_array_equal(top_ids, order)
    np.testing.assert_array_equal(ids, order[:, 0])
    np.testing.assert_allclose(top, np.take_along_axis(expected, order, axis=1), atol=1e-4)
    np.testing.assert_array_equal(logprobs, top[:, 0])


def test_a_model_keeps_its_mapping_alive() -> None:
    tiny = make_tiny_model()
    runner = Runner(tiny)
    step = arguments([1, 2, 3], [0, 1, 2], [0, 0, 0], [[0]], [2])
    _, before = runner.step(**step)
    tiny.weights = np.zeros(1, np.uint8)
    gc.collect()
    assert_same_bits(runner.step(**step)[1], before)


def test_models_share_a_team_of_threads() -> None:
    first, second = Runner(make_tiny_model()), Runner(make_tiny_model(GEMMA_LIKE))
    team = _kernel.Threads(2)
    step = arguments([1, 2, 3], [0, 1, 2], [0, 0, 0], [[0]], [2])
    expected = [runner.step(**step)[1] for runner in (first, second)]
    for runner in (first, second):
        runner.threads = team
    for _ in range(3):
        for runner, logits in zip((first, second), expected, strict=True):
            assert_same_bits(runner.step(**step)[1], logits)


@pytest.mark.parametrize(("shape", "key_bytes"), [(SHAPE, 1), (GEMMA_LIKE, 2)])
def test_the_cache_says_what_it_takes(shape: ModelShape, key_bytes: int) -> None:
    runner = Runner(make_tiny_model(shape), blocks=10)
    per_head_and_token = (key_bytes + 1) * shape.head_dim + 2 * 4  # keys and 8-bit values, a float scale for each
    assert runner.model.cache_bytes_per_token == shape.layers * shape.kv_heads * per_head_and_token
    assert runner.cache.blocks == 10
    assert runner.cache.bytes == 10 * _kernel.BLOCK_TOKENS * runner.model.cache_bytes_per_token
