"""The comparison with llama.cpp, once per instruction-set path."""

from __future__ import annotations

from dataclasses import asdict

from benchmarks.engine.comparison import measure_path
from benchmarks.engine.report import comparison_section
from benchmarks.engine.run import Run, Section


def compare_paths(run: Run) -> list[Section]:
    """One section per path asked for; else for all paths of the machine, when quick for the best only."""
    wanted = run.isa
    if wanted is None:
        with run.our_worker("kernel") as worker:
            granted = worker.call("paths")["granted"]
        wanted = granted[:1] if run.quick else granted
    sections: list[Section] = []
    for isa in wanted:
        comparison = measure_path(run, isa)
        sections.append(Section(f"compare-{isa}", comparison_section(comparison), asdict(comparison)))
    return sections
