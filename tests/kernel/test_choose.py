"""The choice of a token: the rule against float64, the distribution of samples, and the same bits everywhere."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.kernel.choose_reference import IN_PROMPT, Wish, adjusted, choose, distribution, logprobs, noise


def some_logits(vocab: int, seed: int, spread: float = 2.5) -> NDArray[np.float32]:
    """Shaped like a language model's: a wide bulk and a few high tokens."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, spread, vocab)
    high = rng.integers(0, vocab, min(20, vocab))
    x[high] += rng.uniform(0, 12, high.size)
    return x.astype(np.float32)


def some_wish(vocab: int, rng: np.random.Generator) -> Wish:
    """Every parameter at random, often at rest."""

    def one_of(*values: float) -> float:
        return float(rng.choice(values))

    ids = rng.permutation(vocab)[: rng.integers(0, 12)]
    return Wish(
        temperature=one_of(0, 0.2, 0.7, 1, 1.5),
        top_k=int(one_of(0, 0, 1, 3, 40, vocab, vocab + 5)),
        top_p=one_of(1, 1, 0, 0.1, 0.5, 0.9, 0.99),
        min_p=one_of(0, 0, 0.01, 0.3, 1),
        seed=int(rng.integers(0, 1 << 63)),
        choice=int(rng.integers(0, 4)),
        position=int(rng.integers(0, 100_000)),
        presence_penalty=one_of(0, -1, 0.5),
        frequency_penalty=one_of(0, 0.3, 2),
        repetition_penalty=one_of(1, 1.3, 0.8),
        counts={int(i): int(rng.integers(0, 3)) + IN_PROMPT * int(rng.integers(0, 2)) or 1 for i in ids},
        biases={int(i): float(rng.normal(0, 5)) for i in rng.integers(0, vocab, rng.integers(0, 5))},
        allowed=None if rng.random() < 0.6 else (rng.random(vocab) < 0.5) | (np.arange(vocab) == vocab // 2),
    )


def chi_square_is_plausible(seen: NDArray[np.int64], expected: NDArray[np.float64]) -> bool:
    """Within 4 standard deviations of its mean, both ways (Wilson and Hilferty's approximation)."""
    assert expected.min() >= 5
    freedom = expected.size - 1
    value = float(((seen - expected) ** 2 / expected).sum())
    z = ((value / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    return abs(z) < 4


@pytest.mark.parametrize("wide", [False, True])
def test_greedy_takes_the_first_of_equal_logits(wide: bool) -> None:
    for vocab in (1, 2, 15, 16, 17, 511, 512, 513, 49_152):
        rng = np.random.default_rng(vocab)
        x = rng.integers(-3, 3, vocab).astype(np.float32)
        assert choose(x, [Wish()], wide=wide).ids[0] == np.argmax(x)
        assert choose(np.zeros_like(x), [Wish()], wide=wide).ids[0] == 0
        assert choose(-x, [Wish(temperature=1, top_k=1, seed=5)], wide=wide).ids[0] == np.argmax(-x)


def test_log_probabilities_and_alternatives_are_those_of_the_raw_logits() -> None:
    for vocab, spread in ((7, 1.0), (1000, 0.1), (49_152, 2.5), (49_152, 8.0), (262_144, 2.5)):
        x = some_logits(vocab, vocab, spread)
        # Neither temperature nor bias may enter the log-probability.
        c = choose(x, [Wish(), Wish(temperature=2.0, seed=1), Wish(biases={3: 1000.0})], top_logprobs=20)
        expected = logprobs(x)
        assert np.abs(c.logprobs - expected[c.ids]).max() < 3e-6
        assert c.ids[2] == 3
        order = np.argsort(-x, kind="stable")[:20]
        for top_ids, top_logprobs in zip(c.top_ids, c.top_logprobs, strict=True):
            assert top_ids[: order.size].tolist() == order.tolist()
            assert np.abs(top_logprobs[: order.size] - expected[order]).max() < 3e-6
            assert (top_ids[order.size :] == -1).all() and np.isnan(top_logprobs[order.size :]).all()


def test_alternatives_among_ties_are_the_lower_ids() -> None:
    x = np.zeros(5000, np.float32)
    x[[4000, 77]] = 1
    assert choose(x, [Wish()], top_logprobs=5).top_ids.tolist() == [[77, 4000, 0, 1, 2]]


def test_penalties_biases_and_mask_in_this_order() -> None:
    x = np.array([2.0, -1.0, 1.9, 0.5, -5.0], np.float32)

    def greedy(**parameters: object) -> int:
        return int(choose(x, [replace(Wish(), **parameters)]).ids[0])  # type: ignore[arg-type]

    assert greedy(repetition_penalty=1.1, counts={0: 1}) == 2
    assert greedy(repetition_penalty=1.1, counts={0: IN_PROMPT}) == 2
    assert greedy(presence_penalty=0.2, counts={0: 1}) == 2
    assert greedy(presence_penalty=0.2, counts={0: IN_PROMPT}) == 0, "the prompt does not count for presence"
    assert greedy(frequency_penalty=0.06, counts={0: 1}) == 0
    assert greedy(frequency_penalty=0.06, counts={0: 2}) == 2
    assert greedy(frequency_penalty=0.06, counts={0: 2 + IN_PROMPT}) == 2
    assert greedy(biases={3: 1.6}) == 3
    # A bias is not scaled by the repetition penalty, and no bias lifts a token over the mask.
    assert greedy(biases={3: 10.0}, repetition_penalty=5.0, counts={3: 1}) == 3
    assert greedy(biases={3: 100.0}, allowed=np.array([0, 1, 0, 0, 1], bool)) == 1


def test_random_greedy_wishes_match_float64() -> None:
    rng = np.random.default_rng(3)
    for vocab in (33, 700, 5000):
        wishes = [replace(some_wish(vocab, rng), temperature=0.0) for _ in range(200)]
        x = np.stack([some_logits(vocab, i) for i in range(200)])
        ids = choose(x, wishes).ids
        for row, w, i in zip(x, wishes, ids, strict=True):
            a = adjusted(row, w)
            assert a[i] > a.max() - 1e-5


def test_kept_tokens_are_those_of_the_reference() -> None:
    x = np.random.default_rng(11).normal(0, 1.2, 40).astype(np.float32)
    for k, p, m in ((0, 1, 0), (7, 1, 0), (0, 0.6, 0), (0, 1, 0.3), (12, 0.7, 0), (12, 0.9, 0.4), (0, 0.95, 0.1)):
        w = Wish(temperature=1.3, top_k=k, top_p=p, min_p=m)
        expected = distribution(x, w)
        drawn = choose(x, [replace(w, seed=s) for s in range(4000)]).ids
        likely = set(np.flatnonzero(expected > 0.004).tolist())
        assert likely <= set(drawn.tolist()) <= set(np.flatnonzero(expected).tolist()), (k, p, m)


def test_top_k_and_top_p_cut_ties_at_the_lower_ids() -> None:
    x = np.zeros(1000, np.float32)
    for w in (Wish(temperature=1, top_k=3), Wish(temperature=1, top_p=0.0029), Wish(temperature=1, top_p=0.0021)):
        assert set(choose(x, [replace(w, seed=s) for s in range(200)]).ids.tolist()) == {0, 1, 2}
    assert set(choose(x, [Wish(temperature=1, top_p=0, seed=s) for s in range(20)]).ids.tolist()) == {0}


@pytest.mark.parametrize(
    "w",
    [
        Wish(temperature=1),
        Wish(temperature=0.7, top_p=0.9),
        Wish(temperature=1.5, top_k=10, min_p=0.02),
        Wish(temperature=1, counts={0: 2, 3: IN_PROMPT}, repetition_penalty=1.2, presence_penalty=0.5, biases={7: 1.0}),
    ],
)
def test_samples_follow_the_distribution(w: Wish) -> None:
    x = np.random.default_rng(5).normal(0, 1, 30).astype(np.float32)
    expected = distribution(x, w)
    n = 20_000
    for name in ("seed", "position", "choice"):
        ids = choose(x, [replace(w, **{name: s}) for s in range(n)]).ids
        kept = expected > 0
        seen = np.bincount(ids, minlength=30)
        assert seen[~kept].sum() == 0
        assert chi_square_is_plausible(seen[kept], expected[kept] * n), name


def test_pairs_of_neighbouring_choices_are_independent() -> None:
    x = np.zeros(8, np.float32)
    n = 20_000
    ids = choose(x, [Wish(temperature=1, seed=s, position=p) for s in range(n) for p in (7, 8)]).ids.reshape(n, 2)
    seen = np.bincount(ids[:, 0] * 8 + ids[:, 1], minlength=64)
    assert chi_square_is_plausible(seen, np.full(64, n / 64))


def test_a_large_vocabulary_is_sampled_in_full() -> None:
    # Half the mass lies in 49,000 tokens of which none has more than 1/90,000.
    x = np.zeros(49_152, np.float32)
    x[1000] = math.log(49_151)
    n = 2000
    parts = [choose(x, [Wish(temperature=1, seed=s) for s in range(a, a + 100)]).ids for a in range(0, n, 100)]
    ids = np.concatenate(parts)
    rest = ids[ids != 1000]
    assert chi_square_is_plausible(np.array([rest.size, n - rest.size]), np.array([n / 2, n / 2]))
    seen = np.bincount(rest // 3072, minlength=16)
    assert chi_square_is_plausible(seen, np.full(16, rest.size / 16))


@pytest.mark.parametrize(("vocab", "rounds"), [(100, 300), (49_152, 25), (262_144, 4)])
def test_skipping_hopeless_noise_changes_nothing(vocab: int, rounds: int) -> None:
    for s in range(rounds):
        x = some_logits(vocab, s, 1.0 if s % 2 else 3.0)
        w = Wish(temperature=[0.3, 1.0, 2.5][s % 3], seed=s * 977, choice=s % 3, position=s)
        inverse = np.float32(1) / np.float32(w.temperature)
        score = ((x - x.max()) * inverse).astype(np.float64) + noise(vocab, w)
        assert choose(x, [w]).ids[0] == np.argmax(score)
        kept = distribution(x, replace(w, top_p=0.8, min_p=0.001)) > 0
        assert choose(x, [replace(w, top_p=0.8, min_p=0.001)]).ids[0] == np.argmax(np.where(kept, score, -np.inf))


def wishes_and_logits(vocab: int, rows: int, seed: int) -> tuple[NDArray[np.float32], list[Wish]]:
    rng = np.random.default_rng(seed)
    x = np.stack([some_logits(vocab, int(rng.integers(1 << 30)), float(rng.uniform(0.1, 5))) for _ in range(rows)])
    return x, [some_wish(vocab, rng) for _ in range(rows)]


def same_bits_with_and_without_avx2(rounds: int) -> None:
    rng = np.random.default_rng(21)
    for s in range(rounds):
        x, wishes = wishes_and_logits(int(rng.integers(1, 3000)), 8, s)
        assert choose(x, wishes, top_logprobs=5).bits() == choose(x, wishes, top_logprobs=5, wide=False).bits()


def test_same_bits_with_and_without_avx2() -> None:
    same_bits_with_and_without_avx2(60)
    x, wishes = wishes_and_logits(49_152, 20, 1)
    assert choose(x, wishes, top_logprobs=20).bits() == choose(x, wishes, top_logprobs=20, wide=False).bits()


@pytest.mark.long
def test_same_bits_with_and_without_avx2_at_length() -> None:
    same_bits_with_and_without_avx2(5000)


def test_a_row_does_not_depend_on_the_rows_before_it() -> None:
    x, wishes = wishes_and_logits(2000, 60, 2)
    together = choose(x, wishes, top_logprobs=4)
    order = np.random.default_rng(0).permutation(60)
    shuffled = choose(x[order], [wishes[i] for i in order], top_logprobs=4)
    assert together.ids[order].tolist() == shuffled.ids.tolist()
    for i in range(60):
        alone = choose(x[i], [wishes[i]], top_logprobs=4)
        assert alone.ids[0] == together.ids[i]
        assert alone.logprobs[0] == together.logprobs[i] or np.isnan(alone.logprobs[0])
        assert alone.top_logprobs.tobytes() == together.top_logprobs[i].tobytes()


def test_random_sampled_wishes_stay_within_the_kept_tokens() -> None:
    for vocab in (60, 3000):
        x, wishes = wishes_and_logits(vocab, 200, vocab)
        ids = choose(x, wishes).ids
        for row, w, i in zip(x, wishes, ids, strict=True):
            if w.temperature > 0:
                # Float32 rounds the edges of top_p and min_p: a hair more is allowed here.
                loose = replace(w, top_p=w.top_p * 1.00001, min_p=w.min_p * 0.9999)
                assert distribution(row, loose)[i] > 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_without_an_answer_get_no_token(temperature: float) -> None:
    x = some_logits(600, 1)
    w = Wish(temperature=temperature)
    nan, infinite, nothing = x.copy(), x.copy(), np.full_like(x, -np.inf)
    nan[599], infinite[0] = np.nan, np.inf
    for bad in (nan, infinite, nothing):
        c = choose(bad, [w], top_logprobs=3)
        assert c.ids[0] == -1 and np.isnan(c.logprobs[0])
        assert c.top_ids.tolist() == [[-1] * 3] and np.isnan(c.top_logprobs).all()
    for bad_wish in (
        replace(w, allowed=np.zeros(600, bool)),
        replace(w, biases={5: math.nan}),
        replace(w, biases={5: math.inf}),
    ):
        c = choose(x, [bad_wish], top_logprobs=3)
        assert c.ids[0] == -1 and np.isnan(c.logprobs[0])
        assert c.top_ids[0, 0] == np.argmax(x), "the raw alternatives are still there"
    assert choose(x, [replace(w, biases={5: math.nan}, allowed=np.arange(600) != 5)]).ids[0] >= 0


def test_minus_infinity_is_never_chosen_nor_listed() -> None:
    x = np.full(100, -np.inf, np.float32)
    x[[40, 90]] = 1.0
    c = choose(x, [Wish(temperature=2, seed=s, top_k=s % 5) for s in range(100)], top_logprobs=3)
    assert set(c.ids.tolist()) == {40, 90}
    assert c.top_ids[0].tolist() == [40, 90, -1]
    assert np.allclose(c.logprobs, math.log(0.5))


def test_extreme_logits_and_temperatures() -> None:
    x = np.array([3e38, -3e38, 2.9e38, 0], np.float32)
    assert choose(x, [Wish(temperature=t, seed=3) for t in (0.0, 1e-6, 1e-5, 1.0)]).ids.tolist() == [0] * 4
    flat = choose(np.zeros(50, np.float32), [Wish(temperature=1e30, seed=s) for s in range(400)]).ids
    assert len(set(flat.tolist())) == 50
    # The smallest temperature that samples at all still takes the largest logit.
    y = some_logits(1000, 4)
    assert choose(y, [Wish(temperature=1e-5, seed=s) for s in range(20)]).ids.tolist() == [int(np.argmax(y))] * 20
