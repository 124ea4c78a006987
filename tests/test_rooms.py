"""The house keeps its shape: imports only go down, no module outgrows a sitting, no forbidden names.

The order is that of docs/structure.md; this test is what makes the table there true.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "gearshift"

# Highest first. A module may import from its own room and from rooms below.
ORDER = (
    "cli",
    "plan",
    "server",
    "wire",
    "service",
    "accounts",
    "proof",
    "stored",
    "engine",
    "tools",
    "conversation",
    "caller",
    "catalog",
)
FORBIDDEN_NAMES = {"utils", "helpers", "manager", "common"}
LONGEST_MODULE = 500


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room_of(dotted: str) -> str | None:
    parts = dotted.split(".")
    return parts[1] if parts[0] == "gearshift" and len(parts) > 1 else None


def imported(module: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names if node.module == "gearshift")
    return found


def test_imports_only_go_down() -> None:
    wrong: list[str] = []
    for module in modules():
        room = module.relative_to(SOURCE).with_suffix("").parts[0]
        if room not in ORDER:
            continue
        for name in imported(module):
            target = room_of(name)
            if target in ORDER and ORDER.index(target) < ORDER.index(room):
                wrong.append(f"{module.relative_to(SOURCE)} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_every_room_is_on_the_plan() -> None:
    rooms = {module.relative_to(SOURCE).with_suffix("").parts[0] for module in modules()}
    unknown = rooms - set(ORDER) - {"__init__", "__main__"}
    assert not unknown, f"rooms missing from ORDER and docs/structure.md: {sorted(unknown)}"


def test_the_scheduler_imports_nothing_but_plain_python() -> None:
    local = SOURCE / "engine" / "local"
    allowed = ("gearshift.engine.local.scheduler", "gearshift.engine.local.cost", "gearshift.catalog")
    for module in [*(local / "scheduler").glob("*.py"), local / "cost.py"]:
        for name in imported(module):
            assert name.split(".")[0] in sys.stdlib_module_names or name.startswith(allowed), f"{module}: {name}"


def test_modules_can_be_read_in_one_sitting() -> None:
    long_ones = {
        str(module.relative_to(SOURCE)): lines
        for module in modules()
        if (lines := len(module.read_text(encoding="utf-8").splitlines())) > LONGEST_MODULE
    }
    assert not long_ones


def test_no_module_is_named_after_nothing() -> None:
    assert not [module for module in modules() if module.stem in FORBIDDEN_NAMES]
