"""The page, from its template page.html: what it shows of each machine, and what a browser lets it do."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from markupsafe import Markup

from ...errors.base import plural
from ..contenders import OPSMITH
from ..results import Results, Row
from . import costs, limits, speed
from .figures import Figure, Spec, grouped, mark, short_names
from .machines import Machine, in_order, merged
from .markup import TEMPLATES, closed
from .numbers import number, percent, positive, si, times
from .tables import ROWS, SLOWER, flat, meanings, present, slower_rows

HERE = Path(__file__).parent
OPEN_OPS = 2  # up to this many ops are open at first; more are collapsed to their summaries


def page(files: Sequence[tuple[str, Results]]) -> str:
    """The page as one string. `files`: (name, results)."""
    machines = merged(files)
    rows = [row for machine in machines for row in machine.rows]
    distinct = [(len({row[key] for row in rows}), key) for key in ("op", "contender")]
    environments = [(name, flat(results.environment)) for machine in machines for name, results in machine.files]
    specs: list[Spec] = []

    def number_of(figure: Figure) -> int:
        """Adds a figure to those that page.js draws."""
        specs.append(figure.spec)
        return len(specs) - 1

    scripts = [closed(_library()), closed((HERE / "page.js").read_text("utf-8"))]
    style = (HERE / "page.css").read_text("utf-8")
    return TEMPLATES.get_template("page.html").render(
        machines=[_about(machine) for machine in machines],
        counts=[plural(len(rows), "row"), *(plural(count, key) for count, key in distinct)],
        files=files,
        columns=meanings(rows),
        environments=environments,
        facts=dict.fromkeys(fact for _, held in environments for fact in held),
        specs=specs,
        scripts=scripts,
        style=Markup(style),
        policy=_policy(scripts, style),
        **{each.__name__: each for each in (number_of, mark, plural, present)},
        ROWS=ROWS,
        SLOWER=SLOWER,
        OPEN_OPS=OPEN_OPS,
    )


def _library() -> str:
    """Chart.js without the line that names its source map, which a browser would request."""
    text = (HERE / "vendor" / "chart.umd.min.js").read_text("utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("//# sourceMappingURL"))


def _policy(scripts: Sequence[str], style: str) -> str:
    """Allows no network and only these scripts and this style, whatever a name in a row contains."""
    hashes = " ".join(map(_hash, scripts))
    return f"default-src 'none'; script-src {hashes}; style-src {_hash(style)}; img-src data:; base-uri 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _versions(machine: Machine) -> str:
    about = machine.environment
    parts = [
        f"{name} {about[key]}"
        for key, name in (("torch", "torch"), ("cuda", "CUDA"), ("python", "Python"), ("opsmith", "opsmith"))
        if about.get(key)
    ]
    if about.get("date"):
        parts.append(str(about["date"]).partition("T")[0])
    return " · ".join(parts)


# --- A machine --------------------------------------------------------------------------------------------------------


def _about(machine: Machine) -> dict[str, Any]:
    """What the template shows of a machine; without rows, no more than its notes."""
    return {
        "machine": machine,
        "versions": _versions(machine),
        "cards": _cards(machine),
        "slower": slower_rows(machine),
        "baselines": _drawn(speed.overview(machine)),
        "limits": _drawn(limits.roofline(machine), limits.bandwidth(machine)),
        "ops": _by_op(machine),
        "costs": _drawn(costs.host(machine), costs.peak(machine), costs.cold(machine)),
    }


def _drawn(*figures: Figure | None) -> list[Figure]:
    return [figure for figure in figures if figure is not None]


def _cards(machine: Machine) -> list[tuple[str, str, str]]:
    """The most important figures: (value, what it is, more about it)."""
    cards = []
    for name, rows in grouped([r for r in machine.rows if positive(r.get("speedup"))], "contender").items():
        faster = sum((number(row.get("speedup_low")) or 0) > 1 for row in rows)
        slower = sum((number(row.get("speedup_high")) or 2) < 1 for row in rows)
        counts = f"faster in {faster} of {len(rows)} samples{f', slower in {slower}' if slower else ''}"
        cards.append((times(geometric_mean(row["speedup"] for row in rows)), f"as fast as {name[0]}", counts))
    largest = _largest(machine)
    if largest:
        middle = median(row["share"] for row in largest)
        least = min(largest, key=lambda row: row["share"])
        short = short_names(machine.rows)
        worst = f"least {percent(least['share'])}, {short(least['op'])} {least['direction']}"
        cards.append((percent(middle), "of the machine's limit", f"median of the largest sizes; {worst}"))
    if "copy" in machine.ceilings:
        found = machine.ceilings
        others = ", ".join(f"{name} {si(found[name], 'B/s')}" for name in ("read", "write") if name in found)
        cards.append((si(found["copy"], "B/s"), "bandwidth of a copy kernel", others))
    return cards


def _largest(machine: Machine) -> list[Row]:
    """The op's own rows that have a share, at the largest size of each op, dtype and direction."""
    own = [row for row in machine.rows if row["contender"] == OPSMITH and number(row.get("share")) is not None]
    groups = grouped(own, "op", "dtype", "direction").values()
    return [max(rows, key=lambda row: positive(row.get("elements")) or 0) for rows in groups]


def _by_op(machine: Machine) -> list[dict[str, Any]]:
    short = short_names(machine.rows)
    return [
        {
            "name": short(op),
            "summary": _summary_of(machine, op),
            "figures": [*speed.speed(machine, op), *speed.scaling(machine, op)],
        }
        for op in dict.fromkeys(row["op"] for row in machine.rows)
    ]


def _summary_of(machine: Machine, op: str) -> str:
    """The mean speedup over each baseline, and the share of the limit."""
    rows = [row for row in machine.rows if row["op"] == op and positive(row.get("speedup"))]
    ratios = [
        f"{times(geometric_mean(row['speedup'] for row in rows if row['contender'] == name))} {name}"
        for name in in_order({row["contender"] for row in rows})
    ]
    best = [row for row in _largest(machine) if row["op"] == op]
    reached = []
    if best:
        row = max(best, key=lambda row: row["share"])
        reached = [f"up to {percent(row['share'])} of the {row.get('limit', '')} limit"]
    return "; ".join(filter(None, (", ".join(ratios), *reached)))
