"""The plans file: read as written, and refused with the place where it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from gearshift.accounts import plans as plans_module
from gearshift.accounts.plans import BadPlans, Plans, read_plans
from gearshift.accounts.prices import MICRO, Tokens
from gearshift.accounts.tanks import Plan, Tank
from gearshift.accounts.windows import Window

PRICE = '[[price]]\nmodel = "m"\ninput = 0.1\ncached_input = 0.01\noutput = 0.4\n'
TANK = '[[plan.team]]\nname = "main"\nwindows = [{ name = "5h", length = "5h", credits = 500 }]\n'


def read(tmp_path: Path, text: str) -> Plans:
    path = tmp_path / "plans.toml"
    path.write_text(text, encoding="utf-8")
    return read_plans(path)


def test_the_example_in_the_module(tmp_path: Path) -> None:
    assert plans_module.__doc__ is not None
    found = read(tmp_path, plans_module.__doc__.partition("\n")[2])
    model = "smollm2-135m-instruct"
    windows = (Window("5h", 500 * MICRO, 5 * 3600), Window("week", 5000 * MICRO, every="week"))
    reserve = Tank(
        "reserve",
        "overflow",
        (Window("7d", 100 * MICRO, 7 * 86400),),
        models=frozenset({model}),
        gears=frozenset({"standard"}),
    )
    assert found.plans == {"team": Plan("team", (Tank("main", "main", windows), reserve))}
    assert found.prices.at(model, 1_800_000_000).charge(Tokens(1000, 0, 1000), "standard") == MICRO // 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("price = [", "is no TOML"),
        ("[[prize]]\n", "unknown field `prize`"),
        (PRICE.replace("output = 0.4", ""), r"missing required field `output`.*price"),
        (PRICE + PRICE, "two prices"),
        (PRICE.replace("0.01", "0.2"), "costs more than input"),
        (PRICE.replace("0.01", "nan"), "must be 0 to"),
        (TANK.replace('length = "5h", ', ""), "needs either a length or a calendar unit"),
        (TANK.replace('"5h", c', '"5 hours", c'), "matching regex"),
        (TANK.replace("500", "-1"), ">= 0"),
        (TANK + TANK, "names a tank twice"),
        (TANK + TANK.replace('"main"', '"second"'), "several main tanks"),
        (TANK + 'kind = "separate"\n', "must name its models or gears"),
        (TANK + 'gears = ["warp"]\n', "Invalid enum value 'warp'"),
        (TANK.replace("}]", '}, { name = "5h", every = "day", credits = 1 }]'), "names a window twice"),
        (TANK.replace('windows = [{ name = "5h", length = "5h", credits = 500 }]', "windows = []"), "length >= 1"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(BadPlans, match=rf"(?s)plans file .*plans\.toml.*{why}"):
        read(tmp_path, text)


def test_the_example_in_the_documentation(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "accounts.md").read_text(encoding="utf-8")
    found = read(tmp_path, page.partition("```toml\n")[2].partition("```")[0])
    assert [(tank.name, tank.kind) for tank in found.plans["team"].tanks] == [
        ("main", "main"),
        ("reserve", "overflow"),
        ("fast", "separate"),
    ]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadPlans, match="cannot be read"):
        read_plans(tmp_path / "none.toml")
