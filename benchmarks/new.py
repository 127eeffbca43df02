"""From `opsmith new` to green tests, as a new user: a bare environment with torch and opsmith, and an empty cache.

    python benchmarks/new.py [--kinds cuda ...] [--json FILE]

For each kind: `opsmith new`, `pip install -e .[dev]` with build isolation, `pytest`. The environment has torch, opsmith
and what these two require, and nothing else: no NVRTC, no Numba, and Triton only if torch brings it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from overhead import write
from packaging.requirements import Requirement
from rich.console import Console
from rich.table import Table

from opsmith import scaffold

ROOT = Path(__file__).parents[1]
BAR_SECONDS = 90.0  # on two cores
NOT_TO_READ = (".gitignore", ".clangd", "LICENSE", "py.typed")


def required(names: list[str]) -> set[str]:
    """These distributions of this environment and all that they require."""
    found: set[str] = set()
    while names:
        if (name := re.sub("[-_.]+", "-", names.pop()).lower()) in found:
            continue
        found.add(name)
        for text in importlib.metadata.requires(name) or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                names.append(requirement.name)
    return found


def environment(directory: Path) -> Path:
    """A virtual environment with torch, and opsmith from this checkout. Its python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    for name in required(["torch", "opsmith"]):
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            top = file.parts[0]
            source = Path(str(distribution.locate_file(top)))
            if top not in ("..", "__pycache__") and not (packages / top).exists() and source.exists():
                (packages / top).symlink_to(source)
    (packages / "opsmith.pth").write_text(f"{ROOT / 'src'}\n")
    return directory / "bin" / "python"


def measure(kind: str, scratch: Path) -> dict[str, Any]:
    python = environment(scratch / "environment")
    project = scratch / "mykernels"
    settings = {**os.environ, "OPSMITH_CACHE_DIR": str(scratch / "cache"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    for name in ("PYTHONPATH", "OPSMITH_RUNTIME"):
        settings.pop(name, None)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()

    def run(*command: str, cwd: Path) -> str:
        done = subprocess.run(command, cwd=cwd, env=settings, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout[-6000:]}{done.stderr[-3000:]}")
        return done.stdout

    run(str(python), "-m", "opsmith.cli", "new", "mykernels", "--kind", kind, cwd=scratch)
    written = time.perf_counter()
    run(sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "-e", ".[dev]", cwd=project)
    installed = time.perf_counter()
    printed = run(str(python), "-m", "pytest", "-p", "no:cacheprovider", cwd=project)
    end = time.perf_counter()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", printed)}
    texts = scaffold.plan("mykernels", kind, scratch / "other").files
    read = [path for path in texts if not path.endswith(NOT_TO_READ)]
    return {
        "kind": kind,
        "seconds": end - begin,
        "new_seconds": written - begin,
        "install_seconds": installed - written,
        "test_seconds": end - installed,
        "cpu_seconds": (after.ru_utime + after.ru_stime) - (used.ru_utime + used.ru_stime),
        "passed": counts.get("passed", 0),
        "skipped": counts.get("skipped", 0),
        "files": len(texts),
        "files_to_read": len([path for path in read if _is_more_than_imports(path, texts[path])]),
        "met": end - begin <= BAR_SECONDS,
    }


def _is_more_than_imports(path: str, text: str) -> bool:
    return not path.endswith("__init__.py") or "import_module" in text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kinds", nargs="*", default=list(scaffold.KINDS), choices=list(scaffold.KINDS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for kind in options.kinds:
        with tempfile.TemporaryDirectory(prefix="opsmith-new-") as scratch:
            rows.append(measure(kind, Path(scratch)))
    table = Table(
        title=f"From `opsmith new` to green tests, {len(os.sched_getaffinity(0))} cores; at most {BAR_SECONDS} s"
    )
    for column in rows[0]:
        table.add_column(column.replace("_", " "))
    for row in rows:
        table.add_row(*(f"{value:.1f}" if isinstance(value, float) else str(value) for value in row.values()))
    Console(width=120).print(table)
    if options.json:
        about = {
            "cores": str(len(os.sched_getaffinity(0))),
            "machine": platform.machine(),
            "load": f"{os.getloadavg()[2]:.1f}",
        }
        write(options.json, "new", rows, about)
    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
