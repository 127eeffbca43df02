"""The whole checklist on every shipped op, with many seeds: `make check-full`. Exit status 1 if an item fails.

The first seeds run at level "full", the others at level "quick". There is a row for each op, place and level.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rich.console import Console

from opsmith import ops
from opsmith.cli.check.supervisor import Supervisor
from opsmith.cli.check.worker import Job

LEVELS = ["full", "quick"]
PLACES = {"cpu": ("cpu", "emulated"), "cuda": ("cuda",)}
console = Console(highlight=False)
printing = threading.Lock()


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    names = [f"opsmith::{name}" for name in options.ops or ops.__all__] if not options.sources else options.ops
    levels = {"full": range(options.full_seeds), "quick": range(options.full_seeds, options.seeds)}
    for level, seeds in ((level, levels[level]) for level in options.levels):
        for emulate in [place == "emulated" for place in options.places or PLACES[options.device]]:
            for name in names:
                device = None if emulate else options.device
                if seeds:
                    options_of = {"device": device, "emulate": emulate, "level": level, "seeds": tuple(seeds)}
                    yield Job((name,), sources=tuple(options.sources), **options_of)


def row(job: Job, workers: int) -> dict[str, Any]:
    """The result of a job: counts over all seeds, why items were skipped, and each failure."""
    reports = Supervisor(job, timeout=1800, workers=workers).run()
    found = {
        "op": reports[0].op,
        "place": "emulated" if job.emulate else reports[0].device,
        "level": job.level,
        "seeds": len(job.seeds),
        "items": len(reports[0].items),
        "ok": all(reports),
        "passed": sum(len(report.passed) for report in reports),
        "failed": sum(len(report.failures) for report in reports),
        "skipped": {item.name: item.message for report in reports for item in report.skipped},
        "failures": [
            {"item": item.name, "seed": report.seed, "message": item.message}
            for report in reports
            for item in report.failures
        ],
        "seconds": round(sum(report.seconds for report in reports), 1),
        "about": reports[0].environment,
    }
    with printing:
        counts = f"{found['passed']} passed, {found['failed']} failed, {len(found['skipped'])} items skipped"
        console.print(
            f"{found['op']:26} {found['place']:8} {job.level:5} seeds {job.seeds[0]}-{job.seeds[-1]}: {counts}, "
            f"{found['seconds']:.0f} s",
            soft_wrap=True,
        )
        for report in reports:
            for item in report.failures:
                console.print(f"\nseed {report.seed}, {item.name}: {item.message}", markup=False, soft_wrap=True)
                console.print(f"```python\n{item.reproduction}\n```\n", markup=False, soft_wrap=True)
    return found


def recorded(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The recorded rows, if only some are measured again."""
    if not options.json or not options.json.exists() or not (options.ops or options.places or options.levels != LEVELS):
        return []
    rows: list[dict[str, Any]] = json.loads(options.json.read_text())["rows"]
    return rows


def rows_of(waiting: list[Job], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The rows as they are done. On a CPU, level "full" has calls of gigabytes: one job at a time."""
    alone = [job for job in waiting if job.level == "full" and options.device == "cpu"]
    yield from (row(job, workers=2) for job in alone)
    # With a GPU, items mostly wait for compilers: one process for every four cores.
    workers = max(1, (os.cpu_count() or 1) // 4 // options.at_once) if options.device == "cuda" else 1
    with ThreadPoolExecutor(options.at_once) as pool:
        for future in as_completed(pool.submit(row, job, workers) for job in waiting[len(alone) :]):
            yield future.result()


def write(path: Path, rows: list[dict[str, Any]], about: dict[str, Any]) -> None:
    ordered = {_place(each): each for each in rows}
    written = {"benchmark": "check", "about": about, "rows": [ordered[place] for place in sorted(ordered)]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(written, indent=1) + "\n")


def _share_cores(processes: int) -> None:
    """Limits threads and torch.compile's processes, of which each process would start one per core."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


def _place(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["level"], row["place"], row["op"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="cpu includes emulated")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--full-seeds", type=int, default=1, help="how many of them at level full")
    parser.add_argument(
        "--at-once", type=int, default=min(2, os.cpu_count() or 1), help="ops at once, each in its own process"
    )
    parser.add_argument("--ops", nargs="*", help="names of ops; none: all")
    parser.add_argument("--from", dest="sources", nargs="*", default=[], help="files that declare other ops")
    parser.add_argument("--levels", nargs="*", default=LEVELS)
    parser.add_argument("--places", nargs="*", help="cpu, emulated, cuda; none: all of the device")
    parser.add_argument(
        "--json", type=Path, help="with --ops, --levels or --places, only those rows of the file are replaced"
    )
    options = parser.parse_args()
    if options.device == "cuda":
        _share_cores(options.at_once)
    kept, rows = recorded(options), []
    for each in rows_of(list(jobs(options)), options):
        about = {**each.pop("about"), "cores": os.cpu_count()}
        rows.append(each)
        if options.json:  # after each job: the run may be interrupted
            write(options.json, [*kept, *rows], about)
    failed = sum(each["failed"] for each in rows)
    runs = sum(each["seeds"] for each in rows)
    console.print(f"{runs} runs of the checklist: {sum(each['passed'] for each in rows)} items passed, {failed} failed")
    sys.exit(0 if all(each["ok"] for each in rows) else 1)


if __name__ == "__main__":
    main()
