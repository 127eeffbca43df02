"""Scripts written in the clumsiest way end by themselves, with the right verdict, and never have many processes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from pathlib import Path

import pytest

import opsmith

PACKAGES = Path(opsmith.__file__).parents[1]
MOST_PROCESSES = 8
OP = """
import torch, opsmith

@opsmith.op("clumsy::scale")
def scale(x: torch.Tensor, s: float = 2.0) -> torch.Tensor:
    return x * s

@scale.register_samples
def _(device, dtype):
    yield opsmith.Sample((torch.randn(64, 300, device=device, dtype=dtype),))
"""
BROKEN = """
@scale.register_kernel("cpu")
def _(x, s):
    return x * s + 1
"""
CHECK = """
report = opsmith.check(scale, level="full", items=["values", "pickling", "threads", "fork"])
print("VERDICT", report.ok, len(report.passed), [item.name for item in report.failures], flush=True)
"""
GOOD = "VERDICT True 4 []"
SHORT = CHECK.replace('"pickling", "threads", ', "")
"""With one item that imports the script in a new process. All three do so by the same function."""
SHORT_GOOD = "VERDICT True 2 []"


class Ran:
    """A command, with the most processes it had at once."""

    def __init__(self, *command: str, input: str | None = None, cwd: Path, seconds: float = 120) -> None:
        mark = f"OPSMITH_TEST_{uuid.uuid4().hex}"
        environment = {**os.environ, mark: "1", "PYTHONPATH": str(PACKAGES)}
        self.most = 0
        done = threading.Event()

        def count() -> None:
            while not done.is_set():
                self.most = max(self.most, len(_processes(mark)))
                time.sleep(0.05)

        counting = threading.Thread(target=count)
        counting.start()
        try:
            ran = subprocess.run(
                command, input=input, cwd=cwd, env=environment, capture_output=True, text=True, timeout=seconds
            )
        finally:
            done.set()
            counting.join()
            self.left = _processes(mark)
        self.status, self.output, self.errors = ran.returncode, ran.stdout, ran.stderr

    @property
    def verdicts(self) -> list[str]:
        return [line for line in self.output.splitlines() if line.startswith("VERDICT")]


def _processes(mark: str) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                if (
                    mark.encode() in (folder / "environ").read_bytes()
                    and b"\nState:\tZ" not in (folder / "status").read_bytes()
                ):
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


def wrote(folder: Path, name: str, *parts: str) -> Path:
    file = folder / name
    file.write_text("\n".join(textwrap.dedent(part) for part in parts))
    return file


def ended_well(ran: Ran, *verdicts: str) -> None:
    assert ran.verdicts == list(verdicts), f"{ran.output}\n{ran.errors}"
    assert ran.status == 0, ran.errors
    assert ran.most <= MOST_PROCESSES
    assert not ran.left


def test_check_at_module_level(tmp_path: Path) -> None:
    compiled = CHECK.replace('"fork"', '"fork", "compile"')
    script = wrote(tmp_path, "script.py", OP, compiled)
    ended_well(Ran(sys.executable, str(script), cwd=tmp_path), "VERDICT True 5 []")


def test_a_wrong_op_is_found_wrong_there_too(tmp_path: Path) -> None:
    """The kernel is registered after a first check: the second one's processes have it, the first one's do not."""
    script = wrote(tmp_path, "script.py", OP, SHORT, BROKEN, SHORT)
    ran = Ran(sys.executable, str(script), cwd=tmp_path)
    assert ran.verdicts[0] == SHORT_GOOD
    assert ran.verdicts[1].startswith("VERDICT False") and "'values'" in ran.verdicts[1]
    assert ran.most <= MOST_PROCESSES


def test_what_follows_a_check_is_done_once(tmp_path: Path) -> None:
    after = 'open("trained", "a").write("x")'
    script = wrote(tmp_path, "script.py", OP, SHORT, after)
    ended_well(Ran(sys.executable, str(script), cwd=tmp_path), SHORT_GOOD)
    assert (tmp_path / "trained").read_text() == "x"


def test_check_in_a_function_called_at_import(tmp_path: Path) -> None:
    function = "def verify():\n" + textwrap.indent(SHORT, "    ") + "\nverify()\n"
    wrote(tmp_path, "clumsylib.py", OP, function)
    ended_well(Ran(sys.executable, "-c", "import clumsylib", cwd=tmp_path), SHORT_GOOD)


def test_check_and_bench_with_assertions_at_module_level(tmp_path: Path) -> None:
    script = wrote(
        tmp_path, "script.py", OP, "assert opsmith.check(scale, items=['values'])",
        "results = opsmith.bench(scale, against='eager', direction='forward')\nprint(results.rows)", SHORT,
    )  # fmt: skip
    ended_well(Ran(sys.executable, str(script), cwd=tmp_path), SHORT_GOOD)


def test_a_script_that_reads_times_at_module_level(tmp_path: Path) -> None:
    """There are none where it is imported again: the item that needs that is skipped, with the reason."""
    bench = "opsmith.bench(scale, against='eager', direction='forward').rows[0]['us']"
    script = wrote(tmp_path, "script.py", OP, bench, SHORT, "print(*[item.message for item in report.skipped])")
    ran = Ran(sys.executable, str(script), cwd=tmp_path)
    ended_well(ran, "VERDICT True 1 []")
    assert "a new process cannot import it: IndexError" in ran.output


@pytest.mark.parametrize("options", [["-"], ["-i", "-q"]], ids=["a notebook's cell", "a REPL"])
def test_check_of_an_op_that_no_other_process_can_import(tmp_path: Path, options: list[str]) -> None:
    """`threads` has no new process then, and says so; `fork` is skipped."""
    text = (OP + CHECK).replace("\n    return x * s\n", "\n    return x * s\n\n")
    text += 'print({item.name: item.message for item in report.items}["fork"])\n'
    ran = Ran(sys.executable, *options, input=text.replace("s),)\n", "s),)\n\n"), cwd=tmp_path)
    assert [line[-20:] for line in ran.verdicts] == ["VERDICT True 3 []"[-20:]], f"{ran.output}\n{ran.errors}"
    assert "notebook or an interactive session" in ran.output
    assert ran.most <= MOST_PROCESSES and not ran.left


def test_check_at_module_level_and_inside_a_test_of_pytest(tmp_path: Path) -> None:
    test = "def test_scale():\n" + textwrap.indent(SHORT, "    ") + "    assert report.ok\n"
    wrote(tmp_path, "test_clumsy.py", OP, SHORT, test)
    ran = Ran(sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "test_clumsy.py", cwd=tmp_path)
    ended_well(ran, SHORT_GOOD, SHORT_GOOD)


@pytest.mark.long
def test_the_commands_take_such_a_script(tmp_path: Path) -> None:
    wrote(tmp_path, "script.py", OP, SHORT, "assert opsmith.bench(scale) is not None")
    opsmith_cli = (sys.executable, "-m", "opsmith.cli")
    checked = Ran(*opsmith_cli, "check", "script.py", "--item", "values", "--item", "fork", "--full", cwd=tmp_path)
    assert checked.status == 0, checked.output + checked.errors
    assert "2 passed" in checked.output and checked.most <= MOST_PROCESSES
    timed = Ran(*opsmith_cli, "bench", "script.py", "--against", "eager", "--direction", "forward", cwd=tmp_path)
    assert timed.status == 0, timed.output + timed.errors
    assert timed.most <= MOST_PROCESSES


def test_a_script_that_runs_the_command_on_itself(tmp_path: Path) -> None:
    call = """
        import subprocess, sys
        done = subprocess.run([sys.executable, "-m", "opsmith.cli", "check", __file__, "--item", "values"])
        print("VERDICT", done.returncode, flush=True)
    """
    script = wrote(tmp_path, "script.py", OP, call)
    ended_well(Ran(sys.executable, str(script), cwd=tmp_path), "VERDICT 0")
