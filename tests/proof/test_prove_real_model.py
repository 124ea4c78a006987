"""The product itself: on the real models, every gear gives the same tokens, alone, in company, from the cache and after
preemption. A short proof here; `make test-long` runs one with many prompts.
"""

from __future__ import annotations

import asyncio

import pytest

from gearshift.engine.local.load import OpenModel
from gearshift.proof.examine import Plan, examine
from gearshift.proof.report import Report

SHORT = 6
LONG = 300


def proven(model: OpenModel, prompts: int) -> Report:
    return asyncio.run(examine(model, Plan(prompts, seed=1, threads=2), _nobody, lambda proof: None))


def _nobody(where: str, done: int, total: int) -> None:
    """Progress for nobody."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["smollm2", "gemma"])
def test_every_gear_gives_the_same_answer(name: str, request: pytest.FixtureRequest) -> None:
    report = proven(request.getfixturevalue(name), SHORT)
    assert report.verdict == "identical", str(report)
    assert sum(one.cached for one in report.passes) > 0


@pytest.mark.long
@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("name", ["smollm2", "gemma"])
def test_every_gear_gives_the_same_answer_to_many_prompts(name: str, request: pytest.FixtureRequest) -> None:
    report = proven(request.getfixturevalue(name), LONG)
    assert report.verdict == "identical", str(report)
    assert sum(one.preempted for one in report.passes) > 0
