"""`opsmith doctor` as a whole: its report, its JSON, its exit status, and that nothing a probe does can break it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from opsmith.cli import _screen, doctor
from opsmith.cli.doctor.finding import Finding, Line, Probe
from opsmith.cli.doctor.guard import examine
from opsmith.cli.doctor.probes import PROBES

from .conftest import PACKAGES, Invoke, Run, flat

KEYS = {"probe", "title", "status", "found", "proof", "fix", "without", "seconds"}

# What probes may do. Each is a function of a module that the probe's process imports.
PATIENTS = """
import ctypes, os, signal, subprocess, sys, time
from opsmith.cli.doctor.finding import Finding

def well(): return Finding("ok", "version 7", "ran it")
def raises(): raise ValueError("what it says\\nand more")
def segfaults(): ctypes.string_at(0)
def exits(): print("its last words"); os._exit(3)
def answers_nonsense(): return 42
def chatters(): print("{"); os.write(1, b"noise" * 100_000); return well()
def hangs_at_its_end(): import atexit; atexit.register(time.sleep, 600); return well()
def ignores_sigterm():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(os.getpid(), file=open(os.environ["PIDS"] + "/probe", "w"), flush=True)
    time.sleep(600)
def waits_for_a_compiler():
    from opsmith.toolchain.process import run
    run(["sh", "-c", f"echo $$ > {os.environ['PIDS']}/compiler; sleep 600"])
"""


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Probe]:
    """patient('raises') -> a probe that runs that function of PATIENTS."""
    (tmp_path / "patients.py").write_text(PATIENTS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def patient(function: str, seconds: float = 60) -> Probe:
        return Probe(function, f"The {function}", f"patients:{function}", "reinstall it", "everything else", seconds)

    return patient


WELL = Finding("ok", "version 7", "ran it")
MISSING = Finding("missing", "no version at all", fix="apt-get install it")
BROKEN = Finding("broken", "version 7 computes nonsense")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """machine(well=WELL): doctor has one probe, 'well', and finds this."""

    def machine(**findings: Finding) -> None:
        probes = [Probe(name, f"The {name}", "", "reinstall it", "everything else") for name in findings]
        lines = [Line.of(probe, finding, 1.0) for probe, finding in zip(probes, findings.values(), strict=True)]
        monkeypatch.setattr(doctor, "PROBES", probes)
        monkeypatch.setattr(doctor, "_lines", lambda: iter(lines))

    return machine


# --- The real one ----------------------------------------------------------------------------------------------


def test_doctor_proves_this_machine_and_answers_for_every_probe(run: Run) -> None:
    done = run("doctor", "--json", "-")
    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout)["probes"]
    assert [line["probe"] for line in lines] == [probe.name for probe in PROBES]
    for line in lines:
        assert set(line) == KEYS
        assert line["status"] in ("ok", "missing", "broken")
        assert line["found"] and line["seconds"] >= 0
        remedies = (line["fix"] is not None, line["without"] is not None)
        assert remedies == ((False, False) if line["status"] == "ok" else (True, True)), line
    status = {line["probe"]: line["status"] for line in lines}
    # What `make setup` has seen to.
    for probe in ("system", "python", "torch", "cxx", "headers", "runtime", "cache"):
        assert status[probe] == "ok", next(line for line in lines if line["probe"] == probe)


def test_doctor_answers_where_torch_is_broken(run: Run, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13: cannot open shared object file')\n")
    done = run("doctor", "--json", "-", "--require", "torch", PYTHONPATH=f"{tmp_path}{os.pathsep}{PACKAGES}")
    assert done.returncode == 1, done.stderr
    found = {line["probe"]: line for line in json.loads(done.stdout)["probes"]}
    assert found["torch"]["status"] == "broken"
    assert "libcudart.so.13" in found["torch"]["found"]
    assert found["cxx"]["status"] == "ok"
    assert "required: torch does not work" in done.stderr


# --- The report ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 120])
def test_the_report_says_what_was_found_the_fix_and_what_works_without_it(
    width: int, invoke: Invoke, machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_screen.output, "width", width)
    machine(well=WELL, missing=MISSING, broken=BROKEN)
    result = invoke("doctor")
    assert result.exit_code == 0, result.output
    assert max(map(len, result.output.splitlines())) <= width
    words = flat(result.output)
    assert "✓ ok The well version 7; ran it" in words
    assert "○ missing The missing no version at all fix apt-get install it without it everything else" in words
    assert "✗ broken The broken version 7 computes nonsense fix reinstall it without it everything else" in words
    assert "1 ok, 1 missing, 1 broken" in words
    assert "Linux and NVIDIA GPUs; ROCm, Windows and macOS are out of scope" in words


def test_json_has_the_same_facts(invoke: Invoke, machine: Callable[..., None]) -> None:
    machine(well=WELL, missing=MISSING)
    well, missing = json.loads(invoke("doctor", "--json", "-").stdout)["probes"]
    assert well == {
        "probe": "well",
        "title": "The well",
        "status": "ok",
        "found": "version 7",
        "proof": "ran it",
        "fix": None,
        "without": None,
        "seconds": 1.0,
    }
    assert (missing["fix"], missing["without"]) == ("apt-get install it", "everything else")


def test_require_sets_the_exit_status(
    invoke: Invoke, machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(well=WELL, missing=MISSING, broken=BROKEN)
    monkeypatch.setattr(doctor, "PATHS", {"cuda": ("well", "broken")})
    for required, status in (("well", 0), ("missing", 1), ("broken", 1), ("cuda", 1)):
        assert invoke("doctor", "--json", "-", "--require", required).exit_code == status, required
    result = invoke("doctor", "--json", "-", "--require", "well", "--require", "cuda")
    assert result.stderr == "required: cuda does not work: see broken.\n"


def test_requiring_what_doctor_does_not_know_is_refused_before_anything_runs(invoke: Invoke) -> None:
    result = invoke("doctor", "--require", "rocm")
    assert result.exit_code == 2
    assert result.output.startswith("error: --require rocm: doctor has no such probe. It has cuda, system, python")


def test_every_probe_can_be_required_and_cuda_is_a_path_of_several() -> None:
    names = {probe.name for probe in PROBES}
    assert {"driver", "nvcc", "nvrtc", "cxx", "triton", "numba"} <= names
    assert set(doctor.PATHS["cuda"]) <= names


def test_another_operating_system_is_reported_as_out_of_scope(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    result = invoke("doctor", "--json", "-", "--require", "cuda")
    (line,) = json.loads(result.stdout)["probes"]
    assert result.exit_code == 1
    assert (line["probe"], line["status"]) == ("system", "broken")
    assert "Windows, macOS and ROCm are out of scope" in line["without"]


# --- Probes that go wrong --------------------------------------------------------------------------------------

ENDINGS = {
    "raises": "ValueError: what it says and more",
    "segfaults": "was ended by SIGSEGV",
    "exits": "ended with status 3: its last words",
    "answers_nonsense": "ended with status 1: TypeError: asdict() should be called on dataclass instances",
}


def test_a_probe_that_fails_in_any_way_is_a_broken_line_and_the_others_are_asked(patient: Callable[..., Probe]) -> None:
    lines = list(examine([*map(patient, ENDINGS), patient("chatters"), patient("hangs_at_its_end", 20)]))
    for line, (name, ending) in zip(lines, ENDINGS.items(), strict=False):
        assert (line.probe, line.status, line.found) == (name, "broken", ending)
        assert line.fix == "reinstall it"
    assert [(line.status, line.found) for line in lines[-2:]] == [("ok", "version 7")] * 2


@pytest.fixture
def pids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where patients that hang leave the number of the process to look for."""
    monkeypatch.setenv("PIDS", str(tmp_path))
    return tmp_path


def is_gone(pid_file: Path) -> bool:
    return not Path("/proc", pid_file.read_text().strip()).exists()


def test_a_probe_that_hangs_is_ended_together_with_its_compiler(patient: Callable[..., Probe], pids: Path) -> None:
    started = time.monotonic()
    # Long enough for a process to import opsmith before it hangs.
    lines = list(examine([patient("waits_for_a_compiler", 5), patient("ignores_sigterm", 5)]))
    assert 5 < time.monotonic() - started < 15
    for line in lines:
        assert (line.status, line.found) == ("broken", "did not answer within 5 s, and was ended")
    assert is_gone(pids / "compiler")
    assert is_gone(pids / "probe")


def test_ctrl_c_ends_doctor_and_every_probe(patient: Callable[..., Probe], pids: Path) -> None:
    code = (
        "import sys\n"
        "from opsmith.cli import doctor, main\n"
        "from opsmith.cli.doctor.finding import Probe\n"
        f"doctor.PROBES = [{patient('waits_for_a_compiler')!r}]\n"
        "sys.argv = ['opsmith', 'doctor']\n"
        "main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{PACKAGES}{os.pathsep}{os.environ['PYTHONPATH']}"},
    )
    deadline = time.monotonic() + 30
    while not ((pids / "compiler").exists() and (pids / "compiler").read_text().strip()):
        assert time.monotonic() < deadline, "the probe has not begun"
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert process.returncode != 0
    assert is_gone(pids / "compiler")
