"""The comparison with llama.cpp, once per instruction-set path."""

from __future__ import annotations

from dataclasses import asdict

from benchmarks.engine.comparison import measure_path
from benchmarks.engine.report import comparison_section
from benchmarks.engine.run import Run, Section


def compare_paths(run: Run) -> list[Section]:
    """One section per path that the machine grants, or per path asked for."""
    wanted = run.isa
    if wanted is None:
        with run.our_worker("kernel") as worker:
            wanted = worker.call("paths")["granted"]
    sections: list[Section] = []
    for isa in wanted:
        comparison = measure_path(run, isa)
        sections.append(Section(f"compare-{isa}", comparison_section(comparison), asdict(comparison)))
    return sections
