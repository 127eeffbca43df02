"""The page: a header, a part for each machine, the rows, and their environments."""

from __future__ import annotations

import base64
import hashlib
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors.base import plural
from ..contenders import OPSMITH
from ..results import Results, Row
from . import costs, limits, speed
from .figures import Figure, grouped, mark, short_names
from .machines import Machine, in_order, merged
from .markup import Html, closed, code, data, join, tag
from .numbers import geometric_mean, number, percent, positive, si, times
from .tables import ROWS, SLOWER, columns_list, environment_table, slower_rows, sortable

HERE = Path(__file__).parent
OPEN_OPS = 2  # up to this many ops are open at first; more are collapsed to their summaries


def page(files: Sequence[tuple[str, Results]]) -> str:
    """The page as one string. `files`: (name, results)."""
    machines = merged(files)
    rows = [row for machine in machines for row in machine.rows]
    specs: list[dict[str, Any]] = []
    title = f"opsmith bench · {', '.join(machine.name for machine in machines)}"
    body = join(
        _header(machines, rows),
        tag(
            "main",
            (_machine(machine, place, len(machines) > 1, specs) for place, machine in enumerate(machines)),
            _all_rows(machines, files, rows),
            tag("section", tag("h2", "Environment"), environment_table(machines)),
        ),
        tag("footer", tag("p", "Made by ", tag("code", "opsmith report"), ". Charts by Chart.js, MIT licence.")),
    )
    chart, script, style = _library(), (HERE / "page.js").read_text("utf-8"), (HERE / "page.css").read_text("utf-8")
    head = join(
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy([chart, script], style)),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        Html(f"<style>{style}</style>"),
    )
    held = [data(results.as_dict(), class_="rows", data_name=name) for name, results in files]
    scripts = join(data(specs, id="figures"), held, code(chart), code(script))
    return f"<!DOCTYPE html>\n{tag('html', tag('head', head), tag('body', body, scripts), lang='en')}\n"


def _library() -> str:
    """Chart.js without the line that names its source map, which a browser would request."""
    text = (HERE / "vendor" / "chart.umd.min.js").read_text("utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("//# sourceMappingURL"))


def _policy(scripts: Sequence[str], style: str) -> str:
    """Allows no network and only these scripts and this style, whatever a name in a row contains."""
    hashes = " ".join(_hash(closed(script)) for script in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src {_hash(style)}; img-src data:; base-uri 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _header(machines: Sequence[Machine], rows: Sequence[Row]) -> Html:
    ops = {row["op"] for row in rows}
    one = len(machines) == 1
    names = {row["contender"] for row in rows}
    counted = [plural(len(rows), "row"), plural(len(ops), "op"), plural(len(names), "contender")]
    return tag(
        "header",
        tag("p", "opsmith bench", class_="brand"),
        tag("h1", machines[0].name if one else f"{len(machines)} machines"),
        tag("p", _versions(machines[0]), class_="versions") if one else _contents(machines),
        tag("p", " · ".join(counted), class_="counts"),
    )


def _contents(machines: Sequence[Machine]) -> Html:
    links = (tag("li", tag("a", machine.name, href=f"#machine-{place}")) for place, machine in enumerate(machines))
    return tag("nav", tag("ul", links), aria_label="machines")


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


def _machine(machine: Machine, place: int, titled: bool, specs: list[dict[str, Any]]) -> Html:
    heading = join(tag("h2", machine.name), tag("p", _versions(machine), class_="versions")) if titled else None
    if not machine.rows:
        nothing = tag("p", "No rows: nothing was measured.")
        return tag("section", heading, nothing, _notes(machine), id=f"machine-{place}")
    legend = _legend(machine)
    filled = tag("p", "Filled marks are forward, hollow ones backward.", class_="hint")

    def shown(*found: Figure | None) -> Html | None:
        drawn = [_figure(figure, specs) for figure in found if figure is not None]
        return tag("div", drawn, class_="grid") if drawn else None

    def part(title: str, *inside: Html | None) -> Html | None:
        """None if the last of `inside`, the charts, is None."""
        return tag("section", tag("h3", title), legend, inside) if inside[-1] else None

    return tag(
        "section",
        heading,
        _summary(machine),
        _notes(machine),
        _slower(machine),
        part("Against each baseline", shown(speed.overview(machine))),
        part("Against the machine's limits", filled, shown(limits.roofline(machine), limits.bandwidth(machine))),
        part("Op by op", *_by_op(machine, shown)),
        part("Host, memory, first call", shown(costs.host(machine), costs.peak(machine), costs.cold(machine))),
        id=f"machine-{place}",
        class_="machine",
    )


def _legend(machine: Machine) -> Html:
    entries = (
        tag("li", tag("span", class_=f"swatch mark-{mark(name, machine.contenders)}", aria_hidden="true"), name)
        for name in machine.contenders
    )
    return tag("ul", entries, class_="legend")


def _figure(figure: Figure, specs: list[dict[str, Any]]) -> Html:
    specs.append(figure.spec)
    canvas = tag("canvas", role="img", aria_label=f"{figure.title}. {figure.caption}".strip())
    return tag(
        "figure",
        tag("h4", figure.title),
        tag("div", canvas, class_="plot", data_figure=len(specs) - 1),
        tag("figcaption", figure.caption) if figure.caption else None,
        class_="wide" if figure.wide else None,
    )


def _summary(machine: Machine) -> Html:
    """The most important figures."""
    cards = []
    for name, rows in grouped([r for r in machine.rows if positive(r.get("speedup"))], "contender").items():
        faster = sum((number(row.get("speedup_low")) or 0) > 1 for row in rows)
        slower = sum((number(row.get("speedup_high")) or 2) < 1 for row in rows)
        counts = f"faster in {faster} of {len(rows)} samples{f', slower in {slower}' if slower else ''}"
        cards.append((times(geometric_mean(row["speedup"] for row in rows)), f"as fast as {name[0]}", counts))
    largest = _largest(machine)
    if largest:
        median = statistics.median(row["share"] for row in largest)
        least = min(largest, key=lambda row: row["share"])
        short = short_names(machine.rows)
        worst = f"least {percent(least['share'])}, {short(least['op'])} {least['direction']}"
        cards.append((percent(median), "of the machine's limit", f"median of the largest sizes; {worst}"))
    if "copy" in machine.ceilings:
        found = machine.ceilings
        others = ", ".join(f"{name} {si(found[name], 'B/s')}" for name in ("read", "write") if name in found)
        cards.append((si(found["copy"], "B/s"), "bandwidth of a copy kernel", others))
    shown = (
        tag("div", tag("p", value, class_="value"), tag("p", what, class_="what"), tag("p", more, class_="more"))
        for value, what, more in cards
    )
    return tag("div", shown, class_="cards")


def _largest(machine: Machine) -> list[Row]:
    """The op's own rows that have a share, at the largest size of each op, dtype and direction."""
    own = [row for row in machine.rows if row["contender"] == OPSMITH and number(row.get("share")) is not None]
    groups = grouped(own, "op", "dtype", "direction").values()
    return [max(rows, key=lambda row: positive(row.get("elements")) or 0) for rows in groups]


def _notes(machine: Machine) -> Html | None:
    if not machine.notes:
        return None
    summary = tag("summary", plural(len(machine.notes), "note"))
    notes = tag("ul", (tag("li", note) for note in machine.notes))
    return tag("details", summary, notes, class_="notes", open=len(machine.notes) <= 5)


def _slower(machine: Machine) -> Html | None:
    rows = slower_rows(machine)
    if not rows:
        return None
    title = f"Where opsmith is slower: {plural(len(rows), 'row')}"
    return tag("details", tag("summary", title), sortable(rows, SLOWER), class_="slower")


def _by_op(machine: Machine, shown: Any) -> list[Html]:
    ops = list(dict.fromkeys(row["op"] for row in machine.rows))
    short = short_names(machine.rows)
    parts = []
    for op in ops:
        charts = shown(*speed.speed(machine, op), *speed.scaling(machine, op))
        summary = tag("summary", tag("strong", short(op)), " ", tag("span", _summary_of(machine, op), class_="hint"))
        nothing = tag("p", "Neither a baseline nor several sizes were measured: see the rows below.", class_="hint")
        parts.append(tag("details", summary, charts or nothing, class_="op", open=len(ops) <= OPEN_OPS))
    caption = (
        "Speed: the time of each relative to opsmith's, with the 95 % interval as a thin line; right of 1, opsmith is "
        "faster. Scaling: bandwidth from small arguments to large; the dashed line is a copy kernel."
    )
    return [tag("p", caption, class_="hint"), *parts]


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


# --- The rest ---------------------------------------------------------------------------------------------------------


def _all_rows(machines: Sequence[Machine], files: Sequence[tuple[str, Results]], rows: Sequence[Row]) -> Html:
    links = (
        tag("a", f"{name} ({plural(len(results.rows), 'row')})", class_="download", data_file=place, download=True)
        for place, (name, results) in enumerate(files)
    )
    return tag(
        "section",
        tag("h2", "Rows"),
        tag("p", "Click a heading to sort. ", tag("span", "Download: ", links, class_="downloads"), class_="hint"),
        ((tag("h3", m.name) if len(machines) > 1 else None, sortable(m.rows, ROWS)) for m in machines if m.rows),
        tag("details", tag("summary", "The columns of the rows"), columns_list(rows), class_="columns"),
        class_="rows-section",
    )
