"""What a machine will do with a load, by the same scheduler that drives the engine."""

from gearshift.plan.simulate import GearResult, Machine, Result, Simulation, simulate
from gearshift.plan.trace import BadTrace, Load, TracedTurn, read_trace, synthetic

__all__ = [
    "BadTrace",
    "GearResult",
    "Load",
    "Machine",
    "Result",
    "Simulation",
    "TracedTurn",
    "read_trace",
    "simulate",
    "synthetic",
]
