"""The page of a report: what it says of rows, however odd; that no name can break out; that a browser shows it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

from opsmith.benchmark import Results
from opsmith.benchmark.report import costs, figures, limits, merged, page, speed
from opsmith.benchmark.report.markup import TEMPLATES, json_text
from opsmith.benchmark.report.numbers import memory, percent, si, three, times
from opsmith.benchmark.report.tables import slower_rows

from .browser import NAMES, Browser, chromium
from .made_rows import CEILINGS, COPY, SIZES, made_results, made_row

HOSTILE = '</script><script>document.title="broken"</script><img src=x onerror=document.title="broken">&"\''
VOID = ("meta", "link", "br", "img", "hr", "input")


def one(*rows: dict[str, Any], **environment: Any) -> list[tuple[str, Results]]:
    about = {"device": "a GPU", "kind": "cuda", "ceilings": CEILINGS["cuda"], **environment}
    return [("rows.json", Results(list(rows), about))]


def specs(text: str) -> list[dict[str, Any]]:
    (held,) = re.findall(r'<script type="application/json" id="figures">(.*?)</script>', text, re.DOTALL)
    return list(json.loads(held))


class Outline(HTMLParser):
    """Every element closed in its order, and the words that are shown."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.scripts = 0
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        assert not any(name.startswith("on") or name == "style" for name, _ in attrs), (tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & {*self.open}:
            self.words.append(data)


def words(text: str) -> str:
    return " ".join(" ".join(Outline(text).words).split())


# --- small parts ----------------------------------------------------------------------------------------------


def test_numbers_for_reading() -> None:
    assert [three(each) for each in (34495.2, 128.4, 34.52, 9.999, 2.139, 0.99961, 0.3554, 0.0)] == [
        "34,495", "128", "34.5", "10.0", "2.14", "1.00", "0.355", "0.00",
    ]  # fmt: skip
    assert [si(each, "B/s") for each in (4.18e12, 23e9, 999.0, 0.5)] == [
        "4.18 TB/s",
        "23.0 GB/s",
        "999 B/s",
        "0.500 B/s",
    ]
    assert [memory(each) for each in (64, 1536, 1 << 30)] == ["64 bytes", "1.50 KiB", "1.00 GiB"]
    assert [percent(each) for each in (0.964, 0.0312, 1.04)] == ["96 %", "3.1 %", "104 %"]
    assert times(2.5) == "2.50\N{MULTIPLICATION SIGN}"


def test_text_is_escaped_and_markup_is_not() -> None:
    cell = TEMPLATES.from_string("<td{{ about|xmlattr }}>{{ text }}{{ markup }}</td>")
    about = {"class": "x", "data-sort": '"&', "hidden": None}
    assert html.unescape(cell.render(about=about, text="1 < 2", markup=Markup("<br>"))) == (
        '<td class="x" data-sort=""&">1 < 2<br></td>'
    )
    assert "1 &lt; 2<br>" in cell.render(about={}, text="1 < 2", markup=Markup("<br>"))


def test_data_cannot_end_its_element_and_is_valid_json() -> None:
    given = {"name": HOSTILE + "<!--\u2028", "values": [1.5, math.nan, math.inf, None], "ünï": "✓"}
    inside = json_text(given)
    assert "<" not in inside and ">" not in inside and inside.isascii()
    assert json.loads(inside) == {**given, "values": [1.5, None, None, None]}


# --- machines and figures -------------------------------------------------------------------------------------


def test_files_of_one_machine_are_one_and_others_are_apart() -> None:
    gpu, cpu = made_results(sizes=SIZES[:2]), made_results("cpu", dtypes=["float32"])
    more = made_results(ops=["opsmith::swish"], sizes=SIZES[:1])
    more.environment = {**more.environment, "ceilings": {**CEILINGS["cuda"], "copy": 9e12, "matmul": {"float32": 1.0}}}
    first, second = merged([("a.json", gpu), ("b.json", cpu), ("c.json", more)])
    assert (first.name, second.name) == ("NVIDIA H200", "AMD EPYC 9654 96-Core Processor, 2 threads")
    assert [name for name, _ in first.files] == ["a.json", "c.json"]
    assert len(first.rows) == len(gpu.rows) + len(more.rows) and first.notes == []
    assert first.ceilings["copy"] == 9e12 and first.ceilings["matmul float32"] == 5.1e13, "the best of both"


def test_a_row_measured_twice_is_the_later_files_and_a_note_says_so() -> None:
    before, now = made_row(), {**made_row(), "us": 7.0}
    (machine,) = merged([*one(before), ("later.json", one(now)[0][1])])
    assert [row["us"] for row in machine.rows] == [7.0]
    assert machine.notes == ["1 rows are in later.json and in an earlier file: those of later.json are shown."]


def test_the_roofline_has_calls_below_lines_of_what_the_machine_gives() -> None:
    (machine,) = merged([("rows.json", made_results())])
    figure = limits.roofline(machine)
    assert figure is not None
    slope, *roofs = figure.spec["lines"]
    for point in slope["points"]:
        assert point["y"] == pytest.approx(point["x"] * COPY["cuda"])
    assert [roof["label"].split()[1] for roof in roofs] == ["bfloat16", "float32"]
    for roof in roofs:
        start, end = roof["points"]
        assert (
            start["y"] == end["y"] and start["x"] * COPY["cuda"] == pytest.approx(start["y"]) and end["x"] > start["x"]
        )
    marks = [point for series in figure.spec["series"] for point in series["points"]]
    assert len(marks) == 192 and not any(point["hollow"] for point in marks), "forward rows; others tell no operations"
    assert all(point["y"] <= point["x"] * COPY["cuda"] for point in marks)


def test_rows_without_operations_are_shown_against_memory() -> None:
    row = made_row(direction="backward")
    (machine,) = merged(one(row))
    assert limits.roofline(machine) is None
    figure = limits.bandwidth(machine)
    assert figure is not None
    (series,) = figure.spec["series"]
    (point,) = series["points"]
    assert point["x"] == row["bytes"] and point["y"] == pytest.approx(row["bytes"] / row["us"] * 1e6)
    assert point["hollow"] and "of the memory limit" in point["text"]
    assert [line["points"][0]["y"] for line in figure.spec["lines"]] == [
        CEILINGS["cuda"][name] for name in ("copy", "read", "write")
    ]


def test_speed_has_a_bar_a_sample_and_baseline_with_its_interval() -> None:
    results = made_results(ops=["opsmith::mish"])
    (machine,) = merged([("rows.json", results)])
    found = speed.speed(machine, "opsmith::mish")
    assert [figure.title for figure in found] == [
        f"Speed, {direction}, {dtype}" for dtype in ("float32", "bfloat16") for direction in ("forward", "backward")
    ]
    spec = found[0].spec
    assert spec["labels"] == [["1 K"], ["16 K"], ["256 K"], ["4 M"], ["64 M"], ["1 G"]]
    assert [series["name"] for series in spec["series"]] == ["eager", "compile", "compile-max"]
    row = next(each for each in results.rows if each["contender"] == "eager")
    eager = spec["series"][0]
    assert (eager["low"][0], eager["values"][0], eager["high"][0]) == (
        row["speedup_low"], row["speedup"], row["speedup_high"],
    )  # fmt: skip


def test_an_overview_is_the_geometric_mean_of_each_op_where_there_are_several() -> None:
    rows = [{**made_row(op, str(place), contender="eager"), "speedup": ratio}
            for op in ("a::x", "b::y") for place, ratio in enumerate((2.0, 8.0))]  # fmt: skip
    (machine,) = merged(one(*rows))
    figure = speed.overview(machine)
    assert figure is not None and figure.spec["labels"] == [["a::x"], ["b::y"]], "two namespaces are shown"
    (series,) = figure.spec["series"]
    assert series["values"] == pytest.approx([4.0, 4.0]) and (series["low"], series["high"]) == ([2.0] * 2, [8.0] * 2)
    (alone,) = merged(one(*rows[:2]))
    assert speed.overview(alone) is None


def test_scaling_is_drawn_where_there_are_sizes() -> None:
    (machine,) = merged([("rows.json", made_results(ops=["opsmith::mish"], dtypes=["float32"]))])
    forward, _ = speed.scaling(machine, "opsmith::mish")
    assert forward.title == "Scaling, forward, float32"
    assert [point["x"] for point in forward.spec["series"][0]["points"]] == list(SIZES)
    assert forward.spec["lines"][0]["points"][0]["y"] == COPY["cuda"]
    for sizes in (SIZES[:2], (1, 2, 40), (2**20, 2**21, 2**22)):
        (machine,) = merged([("rows.json", made_results(ops=["opsmith::mish"], sizes=sizes))])
        assert speed.scaling(machine, "opsmith::mish") == [], f"{sizes}: too few, all tiny, or close together"


def test_each_layout_has_its_own_line() -> None:
    rows = [made_row(sample=f"{2**power} {layout}".strip(), elements=2**power) for power in (10, 14, 18)
            for layout in ("", "sliced", "channels last")]  # fmt: skip
    (machine,) = merged(one(*rows))
    assert [figure.title for figure in speed.scaling(machine, "opsmith::mish")] == [
        f"Scaling, forward, float32{layout}" for layout in ("", ", sliced", ", channels last")
    ]
    assert [speed.layout(name) for name in ("2^20", "4096x1024 sliced", "1,024", "T=512", "contiguous")] == [
        "", "sliced", "", "T=", "contiguous",
    ]  # fmt: skip


def test_without_bytes_scaling_counts_elements() -> None:
    rows = [{key: value for key, value in made_row(sample=str(size), elements=size).items() if key != "bytes"}
            for size in SIZES]  # fmt: skip
    (machine,) = merged(one(*rows))
    (figure,) = speed.scaling(machine, "opsmith::mish")
    assert figure.spec["y"]["title"] == "elements per second" and figure.spec["lines"] == []


def test_host_memory_and_first_calls_are_one_bar_an_op_and_contender() -> None:
    (machine,) = merged([("rows.json", made_results(ops=["opsmith::mish", "opsmith::gelu"]))])
    host, peak, cold = costs.host(machine), costs.peak(machine), costs.cold(machine)
    assert host and peak and cold
    assert host.spec["labels"] == peak.spec["labels"] == [
        [op, direction] for op in ("mish", "gelu") for direction in ("forward", "backward")
    ]  # fmt: skip
    assert cold.spec["labels"] == [["mish"], ["gelu"]]
    assert peak.spec["series"][0]["values"] == [1.0] * 4 and peak.spec["at"] == 1
    assert "for 4.00 GiB" in peak.spec["series"][0]["texts"][0], "of the largest"


def test_kernels_have_separate_marks() -> None:
    every = ["opsmith", "eager", "compile", "compile-max", "liger", "numba", "triton"]
    assert [figures.mark(name, every) for name in every] == list(range(7))
    many = [f"kernel_{number}" for number in range(20)]
    assert {figures.mark(name, many) for name in many} == {5, 6, 7}


def test_where_the_op_is_slower_beyond_noise() -> None:
    rows = [{**made_row(sample=str(high), contender="eager"), "speedup": low, "speedup_low": low, "speedup_high": high}
            for low, high in ((0.9, 1.1), (0.8, 0.9), (0.5, 0.6), (2.0, 2.1))]  # fmt: skip
    (machine,) = merged(one(*rows))
    assert [row["sample"] for row in slower_rows(machine)] == ["0.6", "0.9"]
    assert "Where opsmith is slower: 2 rows" in words(page(one(*rows)))


# --- pages ----------------------------------------------------------------------------------------------------


def without(row: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in keys}


LEAST = {"op": "a::b", "sample": "", "dtype": "float32", "direction": "forward", "contender": "opsmith", "us": 1.0}
ODD = {
    "no rows": [],
    "one row": [made_row()],
    "the least that a row has": [LEAST],
    "no share": [without(made_row(), "share", "limit")],
    "no operations": [without(made_row(), "flops"), {**made_row(contender="eager"), "flops": 0}],
    "no cost": [without(made_row(), "share", "limit", "bytes", "flops")],
    "no intervals": [without(made_row(contender="eager"), "low_us", "high_us", "speedup_low", "speedup_high")],
    "a baseline alone": [made_row(contender="eager")],
    "no time at all": [{**made_row(), "us": 0.0}],
    "not numbers": [{**made_row(contender="eager"), "us": math.nan, "share": math.inf, "speedup": math.nan}],
    "of other types": [{**made_row(), "share": "96 %", "bytes": "many", "notes": None, "cold_s": None, "flops": True}],
    "names from elsewhere": [made_row("数学::мышь", "größe 2 ünï ✓ \u202e\u2028")],
    "no namespace": [made_row("mish"), made_row("gelu")],
    "a long name": [made_row("a::" + "very_" * 40 + "long", "sample " * 30)],
    "notes": [{**made_row(), "notes": ["too noisy to distinguish from opsmith", "<b>"]}],
    "nothing held": [{**made_row(), "held_bytes": 0, "peak_bytes": 512}],
}


@pytest.mark.parametrize("rows", ODD.values(), ids=ODD.keys())
def test_odd_rows_make_a_whole_page(rows: list[dict[str, Any]]) -> None:
    text = page(one(*rows))
    Outline(text)
    specs(text)
    for row in rows:
        assert html.escape(row["op"]) in text


@pytest.mark.parametrize(
    "environment", [{}, {"ceilings": None}, {"ceilings": {"copy": "fast", "matmul": []}, "kind": None}]
)
def test_an_odd_environment_makes_a_whole_page(environment: dict[str, Any]) -> None:
    text = page([("rows.json", Results([made_row(), made_row(contender="eager")], environment))])
    assert "a machine without a name" in words(text)
    assert specs(text) and all(spec.get("lines", []) == [] for spec in specs(text))


def test_what_the_page_says() -> None:
    results = made_results(warnings=["liger is not measured: <not> installed"])
    text = page([("gpu.json", results)])
    said = words(text)
    for each in (
        "NVIDIA H200", "torch 2.11.0+cu130", "CUDA 13.0", "2026-05-04", "384 rows · 4 ops · 4 contenders",
        "as fast as eager", "faster in 96 of 96 samples", "96 % of the machine's limit",
        "4.18 TB/s bandwidth of a copy kernel",
        "1 note", "liger is not measured: <not> installed", "Roofline", "Memory", "Op by op", "Host", "Peak memory",
        "First call", "Environment", "760 TFLOP/s", "gpu.json (384 rows)", "Charts by Chart.js",
    ):  # fmt: skip
        assert each in said, each


def test_machines_are_shown_apart() -> None:
    text = page([("gpu.json", made_results()), ("cpu.json", made_results("cpu", dtypes=["float32"]))])
    assert "2 machines" in words(text)
    assert 'href="#machine-1"' in text and 'id="machine-1"' in text
    assert text.count('class="rows" data-name') == 2 and text.count('class="sortable"') == 2


def test_the_rows_are_in_the_page_as_they_were() -> None:
    results = made_results(warnings=["a note"])
    text = page([("a.json", results)])
    (held,) = re.findall(r'<script type="application/json" class="rows" data-name="a.json">(.*?)</script>', text)
    assert json.loads(held) == json.loads(results.to_json())


def hostile() -> list[tuple[str, Results]]:
    row = {**made_row(HOSTILE, HOSTILE, contender="eager"), "dtype": HOSTILE, "limit": HOSTILE, "notes": [HOSTILE]}
    rows = [row, {**row, "contender": HOSTILE}, {**row, "contender": "opsmith", "direction": HOSTILE}]
    about = {"device": HOSTILE, "kind": HOSTILE, HOSTILE: HOSTILE, "torch": HOSTILE, "date": HOSTILE}
    return [(HOSTILE, Results(rows, {**about, "ceilings": {"copy": 1e12, HOSTILE: HOSTILE}}, [HOSTILE]))]


def test_no_name_in_a_row_can_break_out() -> None:
    text = page(hostile())
    outline = Outline(text)
    assert outline.scripts == 4, "the figures, the rows, the library, the page's own"
    assert HOSTILE not in text and "<img" not in text
    assert " ".join(HOSTILE.split()) in " ".join(" ".join(outline.words).split()), "and yet it is shown, as text"


def test_the_page_loads_nothing_and_runs_only_its_own_code() -> None:
    text = page([("gpu.json", made_results(sizes=SIZES[:1]))])
    assert {*re.findall(r' (?:src|href)="([^"]*)"', text.partition("<script>")[0])} == {"data:,"}
    assert "sourceMappingURL" not in text and "@import" not in text and "url(" not in text.partition("</style>")[0]
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    policy = html.unescape(policy)
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe" not in policy
    for inside in [
        *re.findall(r"<script>(.*?)</script>", text, re.DOTALL),
        *re.findall(r"<style>(.*?)</style>", text, re.DOTALL),
    ]:
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_the_library_comes_with_its_licence() -> None:
    vendor = Path(figures.__file__).parent / "vendor"
    assert (vendor / "chart.umd.min.js").read_text().startswith("/*!\n * Chart.js v4.6.1")
    assert "The MIT License" in (vendor / "chart.LICENSE.md").read_text()


# --- in a browser ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = chromium()
    if program is None:
        pytest.skip(f"none of {', '.join(NAMES)} is installed: `make system` installs Chromium")
    with Browser(program, tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of two machines, with rows that have no speedup, in a folder whose name wants escapes."""
    path = tmp_path_factory.mktemp("a folder") / "report #1.html"
    gpu = made_results(ops=["opsmith::mish", "opsmith::gelu", "opsmith::swish"], sizes=SIZES[:4])
    cpu = made_results("cpu", ops=["opsmith::mish"], dtypes=["float32"], contenders=("opsmith", "eager"))
    path.write_text(page([("gpu.json", gpu), ("cpu.json", cpu)]), encoding="utf-8")
    return path


INKED = """[...document.querySelectorAll("canvas")].map((canvas) => {
  if (!canvas.clientWidth) return null;
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [canvas.width, canvas.height];
  const pen = copy.getContext("2d", { willReadFrequently: true });
  pen.drawImage(canvas, 0, 0);
  return new Set(new Uint32Array(pen.getImageData(0, 0, copy.width, copy.height).data.buffer)).size;
})"""
OPENED = """(document.querySelectorAll("details").forEach((part) => (part.open = true)),
  new Promise((done) => setTimeout(done, 300)))"""


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, False), (1280, True)])
def test_it_renders_without_a_complaint_or_a_request(browser: Browser, written: Path, width: int, dark: bool) -> None:
    browser.open(written, width=width, dark=dark)
    assert browser.evaluate("document.documentElement.dataset.drawn") == "yes"
    colours = [each for each in browser.evaluate(INKED) if each is not None]
    assert len(colours) >= 6 and min(colours) > 10, "every chart that is open has lines, letters and marks on it"
    browser.evaluate(OPENED)
    opened = browser.evaluate(INKED)
    assert None not in opened and min(opened) > 10 and len(opened) == len(specs(written.read_text()))
    assert browser.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out sideways"
    assert browser.complaints == []
    assert browser.requests == [written.as_uri()]
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(20, 23, 27)") is dark


def column(browser: Browser, title: str) -> list[str]:
    return list(
        browser.evaluate(f"""(() => {{
          const table = document.querySelector(".rows-section table");
          const place = [...table.tHead.rows[0].cells].findIndex((head) => head.dataset.title === {json.dumps(title)});
          return [...table.tBodies[0].rows].map((row) => row.cells[place].dataset.sort ?? "");
        }})()""")
    )


def press(browser: Browser, title: str, key: bool = False) -> str:
    """Presses a heading, by the mouse or the keyboard; the heading's aria-sort."""
    find = f"""[...document.querySelectorAll(".rows-section table th")].find(
      (head) => head.dataset.title === {json.dumps(title)})"""
    place = browser.evaluate(f"""(() => {{
      const button = {find}.querySelector("button");
      button.scrollIntoView({{ block: "center", inline: "center" }});
      button.focus();
      const box = button.getBoundingClientRect();
      return {{ x: box.x + box.width / 2, y: box.y + box.height / 2 }};
    }})()""")
    if key:
        for kind in ("keyDown", "keyUp"):
            browser.send(
                "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13
            )
    else:
        for kind in ("mousePressed", "mouseReleased"):
            browser.send("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)
    return str(browser.evaluate(f'{find}.getAttribute("aria-sort")'))


@pytest.mark.parametrize("key", [False, True], ids=["mouse", "keyboard"])
def test_a_table_is_sorted_by_its_headings(browser: Browser, written: Path, key: bool) -> None:
    browser.open(written)
    before = [float(each) for each in column(browser, "µs")]
    assert before != sorted(before)
    assert press(browser, "µs", key) == "ascending"
    assert [float(each) for each in column(browser, "µs")] == sorted(before), "as numbers"
    assert press(browser, "µs", key) == "descending"
    assert [float(each) for each in column(browser, "µs")] == sorted(before, reverse=True)
    assert press(browser, "contender", key) == "ascending"
    names = column(browser, "contender")
    assert names == sorted(names)
    sorts = browser.evaluate(
        '[...document.querySelectorAll(".rows-section table")[0].tHead.rows[0].cells].map((head) => head.ariaSort)'
    )
    assert sorted(set(sorts)) == ["ascending", "none"] and sorts.count("ascending") == 1
    assert browser.complaints == []


def test_rows_that_have_nothing_to_sort_by_stay_last(browser: Browser, written: Path) -> None:
    browser.open(written)
    title = "\N{MULTIPLICATION SIGN} opsmith"
    empty = column(browser, title).count("")
    assert empty > 0
    for _ in range(2):
        press(browser, title)
        values = column(browser, title)
        assert values[-empty:] == [""] * empty and "" not in values[:-empty]


def test_the_rows_can_be_downloaded(browser: Browser, written: Path) -> None:
    browser.open(written)
    name, text = browser.evaluate("""(async () => {
      const link = document.querySelectorAll("a.download")[1];
      return [link.download, document.querySelectorAll("script.rows")[1].textContent];
    })()""")
    assert name == "cpu.json" and browser.evaluate('document.querySelector("a.download").href').startswith("blob:")
    assert {row["device"] for row in json.loads(text)["rows"]} == {"cpu"}


def test_on_paper_everything_is_open_and_light(browser: Browser, written: Path) -> None:
    browser.open(written, dark=True)
    printed = browser.pdf()
    assert printed.startswith(b"%PDF")
    pages = len(re.findall(rb"/Type\s*/Page\b", printed))
    assert pages >= 5
    assert browser.evaluate("document.querySelectorAll('details.op:not([open])').length") > 0, "closed again after"
    assert browser.evaluate("document.documentElement.className") == ""
    assert browser.complaints == []


def test_names_that_would_break_out_are_text(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    path.write_text(page(hostile()), encoding="utf-8")
    browser.open(path)
    assert browser.evaluate("document.title").startswith("opsmith bench")
    assert browser.evaluate("document.querySelectorAll('img, main script').length") == 0
    assert browser.evaluate("document.querySelector('h1').textContent") == HOSTILE
    assert browser.complaints == [] and browser.requests == [path.as_uri()]


@pytest.mark.parametrize(
    "name", ["no rows", "the least that a row has", "not numbers", "no time at all", "of other types"]
)
def test_odd_rows_are_drawn_without_a_complaint(browser: Browser, tmp_path: Path, name: str) -> None:
    path = tmp_path / "odd.html"
    path.write_text(page(one(*ODD[name])), encoding="utf-8")
    browser.open(path)
    browser.evaluate(OPENED)
    assert browser.evaluate("document.documentElement.dataset.drawn") == "yes"
    assert browser.complaints == []


def test_shares_are_of_the_ceilings_that_are_drawn() -> None:
    """Of two files the better ceilings count, for the rows of both."""
    slow, fast = Results([made_row()], {"ceilings": dict(CEILINGS["cuda"])}), made_results()
    slow.environment = {**fast.environment, "ceilings": {**CEILINGS["cuda"], "copy": COPY["cuda"] / 2}}
    slow.rows[0] = {**made_row("opsmith::other"), "share": 0.5}
    (machine,) = merged([("slow", slow), ("fast", fast)])
    (row,) = [row for row in machine.rows if row["op"] == "opsmith::other"]
    assert row["share"] == pytest.approx(row["bytes"] / COPY["cuda"] * 1e6 / row["us"], abs=1e-4) != 0.5
