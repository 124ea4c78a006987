from __future__ import annotations

from array import array

import pytest
from benchmarks.gears.predicted import kept_profile, predict

from gearshift.plan.calibration import Calibration, Curve
from gearshift.plan.trace import TracedTurn

CURVE = Curve(((1.0, 0.01), (16.0, 0.02), (48.0, 0.05)), 0.0)
MACHINE = Calibration("model", "avx2", 2, CURVE, CURVE)


def test_a_copy_keeps_full_drafts_and_new_text_none() -> None:
    copied = array("i", range(100, 200))
    profile = kept_profile([*copied, 1, 2, *copied[:10]], copied[10:60])
    assert len(profile) == 50
    assert max(profile) == 15
    assert profile[-1] == 0
    assert set(kept_profile(array("i", range(50)), range(500, 530))) == {0}


def test_a_turn_alone_runs_at_the_speed_of_its_steps() -> None:
    plain = TracedTurn(0.0, "ultrafast", 100, 51, kept=(0,))
    assert predict(plain, MACHINE, 0)["rate"] <= 100.0 + 1e-6
    # Full steps bring 800 tokens a second; the first ones are short, since drafts have to prove themselves.
    full = TracedTurn(0.0, "ultrafast", 100, 1601, kept=(15,))
    assert 700.0 < predict(full, MACHINE, 0)["rate"] <= 800.0 + 1e-6


def test_beside_a_load_the_rates_add_up() -> None:
    found = predict(TracedTurn(0.0, "ultrafast", 100, 400, kept=(15,)), MACHINE, 8)
    assert found["ratio"] == pytest.approx(found["rate"] / found["stream"])
    assert found["total"] == pytest.approx(found["rate"] + 8 * found["stream"], rel=0.1)
    assert found["alone"] == pytest.approx(8 / (0.01 + 7 * 0.01 / 15), rel=0.1)
    assert found["rate"] < predict(TracedTurn(0.0, "ultrafast", 100, 400, kept=(15,)), MACHINE, 0)["rate"]
