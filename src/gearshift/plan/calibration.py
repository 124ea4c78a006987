"""What was measured of a machine and a model, as a file: the cost of steps in the kernel, and of whole steps of the
engine. Measuring is done elsewhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from gearshift.engine.local.cost import StepCost

_Positive = Annotated[float, msgspec.Meta(gt=0)]


class BadCalibration(ValueError):
    """A calibration file cannot be used; the message names what is wrong."""


class Curve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `StepCost` in a file."""

    points: Annotated[tuple[tuple[_Positive, _Positive], ...], msgspec.Meta(min_length=1)]
    per_key: Annotated[float, msgspec.Meta(ge=0)] = 0.0

    def cost(self) -> StepCost:
        """The curve as the scheduler takes it."""
        return StepCost(self.points, self.per_key)


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model on one machine.

    Attributes:
        model, isa, threads: what was measured.
        kernel: seconds of the forward pass.
        engine: seconds of a step from scheduling to the tokens, the forward pass included.
    """

    model: str
    isa: str
    threads: int
    kernel: Curve
    engine: Curve

    @property
    def cost(self) -> StepCost:
        """What the scheduler believes."""
        return self.kernel.cost()

    @property
    def wall(self) -> StepCost:
        """What steps really take."""
        return self.engine.cost()


def write_calibration(path: Path, calibration: Calibration) -> None:
    """Keep a calibration. Raises OSError."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(calibration), indent=1) + b"\n")


def read_calibration(path: Path) -> Calibration:
    """A calibration from its file.

    Raises:
        BadCalibration: it is not one.
        OSError: it cannot be read.
    """
    try:
        calibration = msgspec.json.decode(path.read_bytes(), type=Calibration)
    except msgspec.DecodeError as error:
        raise BadCalibration(f"{path}: {error}; write a new one with `gearshift simulate --calibrate`") from error
    for name, curve in (("kernel", calibration.kernel), ("engine", calibration.engine)):
        if list(curve.points) != sorted(curve.points) or sorted(s for _, s in curve.points) != [
            s for _, s in curve.points
        ]:
            raise BadCalibration(f"{path}: the points of {name} must ascend in rows and in seconds")
    return calibration
