"""Files of rows, merged by machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..ceilings import Ceilings
from ..contenders import BASELINES, OPSMITH
from ..results import Results, Row, key_of
from .numbers import number, positive


@dataclass
class Machine:
    """`files`: (name, results) of this machine. `rows`: theirs, each measurement once."""

    name: str
    kind: str
    files: list[tuple[str, Results]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ceilings(self) -> dict[str, float]:
        """'copy', 'read', 'write', 'matmul float32', ...: the highest of the files."""
        best: dict[str, float] = {}
        for _, results in self.files:
            for name, value in _ceilings(results.environment).items():
                best[name] = max(value, best.get(name, 0.0))
        return best

    @property
    def environment(self) -> dict[str, Any]:
        """That of the last file."""
        return self.files[-1][1].environment

    @property
    def contenders(self) -> list[str]:
        return in_order({row["contender"] for row in self.rows})


def merged(files: Sequence[tuple[str, Results]]) -> list[Machine]:
    """`files`: (name, results). Of rows measured twice on one machine, the later file counts; a note says so."""
    machines: dict[tuple[Any, ...], Machine] = {}
    for name, results in files:
        about = results.environment
        kind, threads = str(about.get("kind", "")), about.get("threads")
        device = str(about.get("device") or "a machine without a name")
        title = device if threads is None else f"{device}, {threads} thread{'s' if threads != 1 else ''}"
        machine = machines.setdefault((kind, title), Machine(title, kind))
        machine.files.append((name, results))
    for machine in machines.values():
        _fill(machine)
    return list(machines.values())


def _fill(machine: Machine) -> None:
    found: dict[tuple[Any, ...], Row] = {}
    for name, results in machine.files:
        again = sum(key_of(row) in found for row in results.rows)
        if again:
            machine.notes.append(f"{again} rows are in {name} and in an earlier file: those of {name} are shown.")
        found |= {key_of(row): row for row in results.rows}
        machine.notes += [warning for warning in results.warnings if warning not in machine.notes]
    machine.rows = [_with_share(row, machine.ceilings) for row in found.values()]


def _with_share(row: Row, ceilings: dict[str, float]) -> Row:
    """The row with its share of the machine's ceilings; the files may have different ones."""
    if not all(ceilings.get(name) for name in ("copy", "read", "write")):
        return row
    matmul = {name.removeprefix("matmul "): rate for name, rate in ceilings.items() if name.startswith("matmul ")}
    limits = Ceilings(ceilings["read"], ceilings["write"], ceilings["copy"], matmul)
    known = {name: positive(row.get(name)) or 0 for name in ("bytes", "flops")}
    return row if number(row.get("share")) is None else {**row, **limits.share({**row, **known})}


def _ceilings(environment: dict[str, Any]) -> dict[str, float]:
    given = environment.get("ceilings")
    if not isinstance(given, dict):
        return {}
    flat = {name: value for name, value in given.items() if name in ("copy", "read", "write")}
    matmul = given.get("matmul")
    flat |= {f"matmul {dtype}": rate for dtype, rate in matmul.items()} if isinstance(matmul, dict) else {}
    return {name: rate for name, value in flat.items() if (rate := positive(value)) is not None}


def in_order(contenders: Iterable[str]) -> list[str]:
    """The op, the baselines, then the op's kernels."""
    known = (OPSMITH, *BASELINES)
    return sorted(contenders, key=lambda name: (known.index(name) if name in known else len(known), name))
