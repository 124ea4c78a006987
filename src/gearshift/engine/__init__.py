"""What turns a turn into a stream of events. The protocol is here; each engine stands beside it."""

from gearshift.engine.protocol import (
    ChoiceEnd,
    ContextOverflow,
    Delta,
    Engine,
    EngineEvent,
    EngineFailure,
    EngineStatus,
    Generation,
    InvalidGeneration,
    Overloaded,
    Sampling,
    Started,
    TokenLogprob,
)

__all__ = [
    "ChoiceEnd",
    "ContextOverflow",
    "Delta",
    "Engine",
    "EngineEvent",
    "EngineFailure",
    "EngineStatus",
    "Generation",
    "InvalidGeneration",
    "Overloaded",
    "Sampling",
    "Started",
    "TokenLogprob",
]
