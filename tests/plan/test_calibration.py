"""Calibrations: measured through a lane with the real kernel, kept in a file, refused when damaged."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from gearshift.engine.local.load import OpenModel
from gearshift.plan.calibrate import calibrate
from gearshift.plan.calibration import BadCalibration, Calibration, Curve, read_calibration, write_calibration

CURVE = Curve(((1.0, 0.01), (16.0, 0.02)), 1e-6)
GOOD = Calibration("some-model", "avx512", 2, CURVE, Curve(((1.0, 0.011), (16.0, 0.022))))


def test_a_calibration_is_kept_in_a_file(tmp_path: Path) -> None:
    write_calibration(tmp_path / "cost.json", GOOD)
    read = read_calibration(tmp_path / "cost.json")
    assert read == GOOD
    assert read.cost.seconds(16, 1000) == pytest.approx(0.021)
    assert read.wall.seconds(1) == 0.011


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0.02", "0.002", "the points of kernel must ascend"),
        ("16.0", "0.5", "the points of kernel must ascend"),
        ("0.011", "0", r"\$.engine.points\[0\]\[1\]`; write a new one with `gearshift simulate --calibrate`"),
        ('"isa"', '"path"', "unknown field `path`"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "cost.json"
    write_calibration(path, GOOD)
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(BadCalibration, match=message):
        read_calibration(path)


def test_a_machine_is_calibrated_through_a_lane(smollm2: OpenModel) -> None:
    told: list[tuple[int, int]] = []
    measured = calibrate(
        smollm2,
        threads=1,
        rounds=2,
        streams=(4, 2, 1),
        prompts=(64,),
        contexts=(32, 64),
        progress=lambda what, done, total: told.append((done, total)),
    )
    assert (measured.model, measured.isa, measured.threads) == (smollm2.name, smollm2.kernel.isa, 1)
    for curve in (measured.kernel, measured.engine):
        assert [rows for rows, _ in curve.points] == [1, 2, 4, 64]
        assert all(0 < a[1] <= b[1] for a, b in pairwise(curve.points))
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4), (1, 1)]
