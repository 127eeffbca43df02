"""Test results that are shipped with a package: what was checked, on which machine, and how fast it is
(prebuilt/passport.json).

It is made of files that `opsmith check --json` and `opsmith bench --json` wrote, perhaps on other machines than the one
that builds the package; `opsmith show` prints it where the package is installed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import PassportError
from ..errors.base import plural

FILE = "passport.json"
_SPEED = ("op", "sample", "dtype", "direction", "us", "share", "limit")


def passport(files: Iterable[Path], ops: Sequence[str]) -> dict[str, Any]:
    """The results of these ops in the files. Raises PassportError for a file of another kind and a failed check."""
    found: dict[str, Any] = {"checks": [], "speeds": []}
    for path in files:
        try:
            held = json.loads(path.read_text())
        except OSError as error:
            raise PassportError(path, f"cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise PassportError(path, f"is not JSON: {error}") from None
        try:
            if "reports" in held:
                found["checks"] += [_checked(path, each) for each in held["reports"] if each["op"] in ops]
            else:
                found["speeds"] += _speeds(held, ops)
        except (AttributeError, KeyError, TypeError):
            what = "is not what `opsmith check --json` or `opsmith bench --json` writes"
            raise PassportError(path, what) from None
    if not any(found.values()):
        raise PassportError(None, f"no result of {', '.join(ops)} is in these files")
    return found


def _checked(path: Path, report: Mapping[str, Any]) -> dict[str, Any]:
    statuses = [item["status"] for item in report["items"]]
    if not report["ok"]:
        failed = [item["name"] for item in report["items"] if item["status"] == "failed"]
        reason = f"its check failed: {', '.join(failed)}" if failed else "its check is not complete"
        raise PassportError(path, f"says that {report['op']} is not ok: {reason}")
    counts = {status: statuses.count(status) for status in ("passed", "skipped")}
    kept = {key: report[key] for key in ("op", "device", "level", "emulated", "environment")}
    return {**kept, **counts, "items": [item["name"] for item in report["items"] if item["status"] == "passed"]}


def _speeds(held: Mapping[str, Any], ops: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each time of an op, with the times of what it was measured against."""
    environment = {key: held["environment"].get(key) for key in ("device", "torch", "opsmith", "date")}
    cells: dict[tuple[Any, ...], dict[str, float]] = {}
    own: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in held["rows"]:
        cell = tuple(row.get(key) for key in ("op", "sample", "dtype", "direction"))
        if row["op"] not in ops or "us" not in row:
            continue
        if row["contender"] == "opsmith":
            own[cell] = {key: row[key] for key in _SPEED if key in row}
        else:
            cells.setdefault(cell, {})[row["contender"]] = row["us"]
    return [{**row, "against": cells.get(cell, {}), "environment": environment} for cell, row in own.items()]


# --- reading, where the package is installed --------------------------------------------------------------------------


def lines(op: str, held: Mapping[str, Any]) -> list[tuple[str, str]]:
    """("checked" or "speed", text): the lines of a passport about an op."""
    found = [("checked", _check_line(each)) for each in held.get("checks", ()) if each["op"] == op]
    rows = [each for each in held.get("speeds", ()) if each["op"] == op]
    for direction in dict.fromkeys(row["direction"] for row in rows):
        for device in dict.fromkeys(row["environment"]["device"] for row in rows):
            cell = [row for row in rows if (row["direction"], row["environment"]["device"]) == (direction, device)]
            if cell:
                found.append(("speed", _speed_line(max(cell, key=lambda row: row["us"]))))
    return found


def _check_line(check: Mapping[str, Any]) -> str:
    environment = check["environment"]
    machine = environment.get("machine")
    where = "emulated" if check["emulated"] else f"the CPU ({machine})" if check["device"] == "cpu" else machine
    skipped = f", {check['skipped']} do not apply or were skipped" if check["skipped"] else ""
    return f"{check['passed']} items passed{skipped}; level {check['level']}, {where}, torch {environment.get('torch')}"


def _speed_line(row: Mapping[str, Any]) -> str:
    share = f", {row['share']:.0%} of the {row.get('limit', 'memory')} limit" if row.get("share") else ""
    others = "".join(f", {us / row['us']:.2g} times as fast as {name}" for name, us in row["against"].items())
    what = f"{row['direction']}, {row['dtype']}, {row['sample']}: {row['us']:.4g} us{share}{others}"
    return f"{what}; {row['environment']['device']}, torch {row['environment']['torch']}"


def prebuilt_line(names: Collection[str], manifest: Mapping[str, Any]) -> str | None:
    """'36 kernels, for AVX2, AVX512, any processor, sm_90': what a package ships for an op and its extensions."""
    rows = [row for row in manifest.get("kernels", ()) if row["op"] in names]
    if not rows:
        return None
    places = dict.fromkeys(map(place_name, sorted({row["place"] for row in rows})))
    cuda = f"; CUDA {manifest['cuda']}" if manifest.get("cuda") else ""
    return f"{plural(len({row['key'] for row in rows}), 'kernel')}, for {', '.join(places)}{cuda}"


def place_name(place: str) -> str:
    """'PTX 120' of compute_120, 'any processor' of the baseline."""
    for_any = dict.fromkeys(("DEFAULT", "x86-64", "any"), "any processor")
    processors = {**for_any, "x86-64-v3": "AVX2", "x86-64-v4": "AVX512"}
    return processors.get(place, place.replace("compute_", "PTX "))
