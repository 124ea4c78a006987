"""The finished run: one Markdown document, and one JSON file with everything that was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.engine.machine import Machine
from benchmarks.engine.report import machine_lines
from benchmarks.engine.run import Run, Section


def document(run: Run, sections: Sequence[Section]) -> str:
    """The whole result as Markdown."""
    kind = "Quick run: rough numbers." if run.quick else f"{run.rounds} rounds of A B B A."
    head = [f"## Engine benchmark: {run.model}", machine_lines(run.machine, run.threads), kind]
    return "\n\n".join([*head, *(section.markdown for section in sections)])


def write_results(folder: Path, run: Run, sections: Sequence[Section]) -> Path:
    """Write the raw results; the file's name tells when and which commit."""
    settings = {"model": run.model, "threads": run.threads, "quick": run.quick, "rounds": run.rounds}
    return write_file(folder, "engine", run.machine, settings, sections, document(run, sections))


def write_file(
    folder: Path,
    name: str,
    machine: Machine,
    settings: Mapping[str, Any],
    sections: Sequence[Section],
    markdown: str,
) -> Path:
    """Write what a run of the benchmark `name` brought."""
    folder.mkdir(parents=True, exist_ok=True)
    moment = datetime.now(UTC)
    target = folder / f"{name}-{moment:%Y%m%dT%H%M%SZ}-{machine.commit[:12]}.json"
    content = {
        "when": moment.isoformat(),
        "machine": machine.facts(),
        "settings": dict(settings),
        "sections": {section.name: section.data for section in sections},
        "markdown": markdown,
    }
    target.write_text(json.dumps(content, indent=1) + "\n")
    return target
