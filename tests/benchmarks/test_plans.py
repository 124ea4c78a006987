"""Plans, prompts, limits, bars and the peers' builds: the plain rules of the benchmark."""

from __future__ import annotations

import pytest
from benchmarks.engine.bars import ALL_MEASURES, bar_for, overhead_bar
from benchmarks.engine.peers import build_for, options_of
from benchmarks.engine.plans import limit_rate, plans, values_from
from benchmarks.engine.prompts import HIGHEST_ID, LOWEST_ID, prompt_ids

ZEN3 = ("avx2", "fma", "f16c", "bmi2")
SAPPHIRE = (
    *ZEN3,
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_vbmi",
    "avx512_vnni",
    "avx512_bf16",
    "amx_tile",
    "amx_int8",
)
SKYLAKE = (*ZEN3, "avx512f", "avx512bw", "avx512vl")


@pytest.mark.parametrize("quick", [True, False])
def test_the_plans_yield_every_measure_that_is_reported(quick: bool) -> None:
    found: set[str] = set()
    for plan in plans(quick):
        if plan.op == "rows":
            answer = {"step_seconds": {str(count): [0.5, 0.1, 0.2] for count in plan.arguments["counts"]}}
        else:
            answer = {"tokens": 10, "seconds": 2.0}
        found |= values_from(plan, answer).keys()
    assert found == set(ALL_MEASURES)


def test_rates_are_tokens_per_second() -> None:
    decode, rows = plans(True)[:2]
    assert values_from(decode, {"tokens": 10, "seconds": 2.0}) == {"decode-1": 5.0}
    assert values_from(rows, {"step_seconds": {"4": [0.5, 0.1, 0.2]}}) == {"rows-4": 20.0}


def test_the_limit_is_one_read_of_the_weights_per_step() -> None:
    assert limit_rate("decode-1", weight_bytes=100, bandwidth=50_000) == 500
    assert limit_rate("decode-32", weight_bytes=100, bandwidth=50_000) == 16_000
    assert limit_rate("prefill", weight_bytes=100, bandwidth=50_000) == 256_000


def test_prompts_differ_from_the_first_token_on_and_stay_within_the_vocabulary() -> None:
    prompts = [prompt_ids(300, key) for key in range(200)]
    assert prompts[7] == prompt_ids(300, 7)
    assert len({tuple(prompt[:2]) for prompt in prompts}) == len(prompts)
    assert all(LOWEST_ID <= token < HIGHEST_ID for prompt in prompts for token in prompt)


def test_bars_follow_the_path() -> None:
    best = bar_for("amx", "decode-32")
    assert best is not None
    assert best.ratio == 6.0
    assert bar_for("amx", "rows-16") is None
    assert [bar.ratio for isa in ("avx512", "avx2") if (bar := bar_for(isa, "rows-16"))] == [2.0, 1.3]
    assert bar_for("portable", "decode-1") is None
    assert overhead_bar(49_152) == 300 << 20
    assert overhead_bar(262_144) == 600 << 20


def test_llama_is_built_for_the_path_it_stands_against() -> None:
    assert build_for("amx", SAPPHIRE) == "avx512"
    assert build_for("avx512", SAPPHIRE) == "avx512"
    assert build_for("avx2", SAPPHIRE) == "avx2"
    assert build_for("avx2", ZEN3) == "avx2"
    with pytest.raises(ValueError, match="avx2"):
        build_for("avx2", ("fma",))


def test_builds_use_what_the_processor_has_and_never_amx() -> None:
    assert "GGML_AVX512_BF16" in options_of("avx512", SAPPHIRE)
    assert "GGML_AVX512" in options_of("avx512", SKYLAKE)
    assert "GGML_AVX512_BF16" not in options_of("avx512", SKYLAKE)
    assert not [option for option in options_of("avx512", SAPPHIRE) if "AMX" in option]
    assert not [option for option in options_of("avx2", SAPPHIRE) if "512" in option]
