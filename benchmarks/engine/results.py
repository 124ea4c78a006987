"""The finished run: one Markdown document, and one JSON file with everything that was measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.engine.report import machine_lines
from benchmarks.engine.run import Run, Section


def document(run: Run, sections: Sequence[Section]) -> str:
    """The whole result as Markdown."""
    kind = "Quick run: rough numbers." if run.quick else f"{run.rounds} rounds of A B B A."
    head = [f"## Engine benchmark: {run.model}", machine_lines(run.machine, run.threads), kind]
    return "\n\n".join([*head, *(section.markdown for section in sections)])


def write_results(folder: Path, run: Run, sections: Sequence[Section]) -> Path:
    """Write the raw results; the file's name tells when and which commit."""
    folder.mkdir(parents=True, exist_ok=True)
    moment = datetime.now(UTC)
    target = folder / f"engine-{moment:%Y%m%dT%H%M%SZ}-{run.machine.commit[:12]}.json"
    content = {
        "when": moment.isoformat(),
        "machine": run.machine.facts(),
        "settings": {"model": run.model, "threads": run.threads, "quick": run.quick, "rounds": run.rounds},
        "sections": {section.name: section.data for section in sections},
        "markdown": document(run, sections),
    }
    target.write_text(json.dumps(content, indent=1) + "\n")
    return target
