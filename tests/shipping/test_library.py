"""A package's operators as one library: torch loads it without Python's part, and beside it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import fresh_process
import pytest
import torch
from packages import SOURCES, Once, build

import opsmith
from opsmith.shipping.library import collect

OPS = """
from pathlib import Path

import torch
from torch import Tensor

import opsmith


@opsmith.pointwise("{name}::gated")
def gated(x: Tensor, bias: Tensor, factor: float = 2.0, negate: bool = False) -> Tensor:
    y = torch.relu(x * factor + bias)
    return -y if negate else y


@gated.register_samples
def _(device, dtype):
    if dtype is not torch.float32:
        return
    x, bias = torch.ones(4, 8, device=device, dtype=dtype), torch.ones(8, device=device, dtype=dtype)
    yield opsmith.Sample((x, bias), name="4x8")
    yield opsmith.Sample((x, bias), dict(negate=True), name="4x8 negated")


@opsmith.pointwise("{name}::halved")
def halved(count: Tensor) -> Tensor:
    return count * 0.5


@halved.register_samples
def _(device, dtype):
    if dtype is torch.float32:
        yield opsmith.Sample((torch.ones(6, device=device, dtype=torch.int64),))


@opsmith.pointwise("{name}::doubled_", mutates_args=("x",))
def doubled_(x: Tensor) -> None:
    x.mul_(2)


@doubled_.register_samples
def _(device, dtype):
    if dtype is torch.float32:
        yield opsmith.Sample((torch.ones(6, device=device),))


ext = opsmith.extension("{name}_ext", Path(__file__).parent / "summed.cpp", extra_cflags=["-march=native"], lazy=True)


@opsmith.op("{name}::summed")
def summed(tensors: list[Tensor], names: str, offset: int | None = None) -> tuple[Tensor, Tensor]:
    total = torch.stack(tensors).sum(0) + (offset or 0)
    return total, total + len(names)


summed.register_kernel("cpu", ext.summed)


@opsmith.op("{name}::plain")
def plain(x: Tensor) -> Tensor:
    return x.cos()
"""
SUMMED = """
#include <opsmith/kernel.h>

using opsmith::Tensor;

std::tuple<Tensor, Tensor> sum_all(std::vector<Tensor> tensors, std::string names, std::optional<int64_t> offset) {
  opsmith::expect(tensors.at(0), "tensors").cpu().contiguous();
  if (names == "refused") opsmith::fail("these names are refused");
  Tensor total = opsmith::empty_like(tensors[0]), longer = opsmith::empty_like(tensors[0]);
  float* to = static_cast<float*>(total.mutable_data_ptr());
  float* more = static_cast<float*>(longer.mutable_data_ptr());
  for (int64_t i = 0; i < total.numel(); ++i) {
    float sum = static_cast<float>(offset.value_or(0));
    for (const Tensor& each : tensors) sum += static_cast<const float*>(each.const_data_ptr())[i];
    to[i] = sum;
    more[i] = sum + static_cast<float>(names.size());
  }
  return {total, longer};
}
OPSMITH_EXPORT(summed, sum_all)
"""


def project(directory: Path, name: str, ops: str = OPS) -> Path:
    package = directory / "project" / "src" / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .ops import doubled_, gated, halved, plain, summed\n")
    (package / "ops.py").write_text(ops.format(name=name))
    (package / "summed.cpp").write_text(SUMMED)
    (package.parents[1] / "pyproject.toml").write_text(f'[project]\nname = "{name}"\nversion = "1"\n')
    return package


@pytest.fixture(scope="session")
def library(once: Once) -> Path:
    """The project's dist/liblibrarian.so; the package is beside it."""

    def make(directory: Path) -> None:
        package = project(directory, "librarian")
        done = build(package, "--no-cuda", "--library", "--json", "facts.json")
        facts = json.loads((package.parents[1] / "facts.json").read_text())
        assert facts["operators"]["librarian::gated_backward"] and not facts["operators"]["librarian::plain"]
        assert re.search(r"librarian::summed_backward +none: schema only", done.stdout)
        assert [str(each) for each in (package.parents[1] / "dist").iterdir()] == [facts["library"]]

    (found,) = (once("library", make) / "project" / "dist").iterdir()
    return found


def run(script: str, library: Path, *, with_opsmith: bool = False, fails: bool = False, **environment: str) -> str:
    """What a script prints in a process of its own. `LIBRARY` is the library's path."""
    path = f"{SOURCES}{os.pathsep}{library.parents[1] / 'src'}" if with_opsmith else ""
    done = fresh_process.run(
        ["-c", f"import torch\nLIBRARY = {str(library)!r}\nops = torch.ops.librarian\n{script}"],
        env={**os.environ, "PYTHONPATH": path, "OPSMITH_RUNTIME": "python", **environment},
    )
    assert (done.returncode != 0) is fails, done.stdout + done.stderr
    return done.stdout + done.stderr


ALONE = """
import sys
torch.ops.load_library(LIBRARY)
x, bias = torch.randn(5, 8), torch.randn(8)
for negate in (False, True):
    y = ops.gated(x, bias, 0.25, negate)
    assert torch.equal(y, torch.relu(x * 0.25 + bias) * (-1 if negate else 1))
grad = torch.randn(5, 8)
y = ops.gated(x, bias)
found = ops.gated_backward(grad, x, bias, 2.0, False, None, [True, True])
masked = grad * (y > 0)
assert torch.equal(found[0], masked * 2.0)
torch.testing.assert_close(found[1], masked.sum(0))
assert ops.gated(torch.empty(0, 8), bias).shape == (0, 8)
assert torch.equal(ops.gated(x[:1], bias), torch.relu(x[:1] * 2 + bias)), "a batch of one, which no sample has"
out = torch.empty(5, 8)
ops.gated_out(x, bias, out=out)
assert torch.equal(out, y)
z = torch.ones(4)
ops.doubled_(z)
assert z.tolist() == [2] * 4
total, longer = ops.summed([torch.ones(3), torch.arange(3.0)], "four", 10)
assert total.tolist() == [11, 12, 13] and longer.tolist() == [15, 16, 17]
assert ops.summed([torch.ones(3, 2).t()[:, ::2], torch.ones(2, 2)], "")[0].tolist() == [[2, 2], [2, 2]]
assert "opsmith" not in sys.modules
print("the library alone")
"""


@pytest.mark.parametrize("capability", [None, "avx2", "default"])
def test_loading_the_library_is_all_it_needs(library: Path, capability: str | None) -> None:
    lowered = {"ATEN_CPU_CAPABILITY": capability} if capability else {}
    assert "the library alone" in run(ALONE, library, **lowered)


REFUSED = """
torch.ops.load_library(LIBRARY)
def message(call):
    try:
        call()
    except (RuntimeError, NotImplementedError) as error:
        return str(error).splitlines()[0]
    raise AssertionError("it ran")
x, bias = torch.ones(4, 8), torch.ones(8)
print(message(lambda: ops.gated(x.half(), bias.half())))
print(message(lambda: ops.gated(x[:, ::2], bias[:4])))
print(message(lambda: ops.summed([torch.ones(3)], "refused")))
print(message(lambda: ops.plain(x)))
print(ops.halved(torch.ones(2, dtype=torch.int64)).dtype)
torch.set_default_dtype(torch.float64)
print(message(lambda: ops.halved(torch.ones(2, dtype=torch.int64))))
print(ops.gated(x, bias).dtype)
"""


def test_calls_that_no_kernel_serves_are_refused_by_name(library: Path) -> None:
    half, strided, failed, plain, dtype, default, independent = run(REFUSED, library).strip().splitlines()
    assert half.startswith(
        "librarian::gated: the library of librarian has no kernel for this call: x is float16 [4, 8]"
    )
    assert "x is float32 [4, 4], not contiguous, on the CPU" in strided
    assert "these names are refused" in failed
    assert "librarian::plain" in plain
    assert dtype == "torch.float32"
    assert default.startswith("librarian::halved: "), "its program was built for another default dtype"
    assert independent == "torch.float32", "gated does not depend on it"


CHANGES = """
torch.ops.load_library(LIBRARY)
x = torch.ones(6, requires_grad=True)
for h in (x, x * 3):
    for change in (ops.doubled_, lambda t: ops.gated_out(torch.ones(6), torch.ones(6), out=t)):
        try:
            change(h)
        except RuntimeError as error:
            assert "requires a gradient, and a library cannot record one" in str(error), error
        else:
            raise AssertionError("a change that autograd does not know of")
h = x.exp()
with torch.no_grad():
    ops.doubled_(h)
assert h._version == 1
try:
    h.sum().backward()
except RuntimeError as error:
    assert "modified by an inplace operation" in str(error), error
else:
    raise AssertionError("exp needs its result")
with torch.inference_mode():
    assert ops.doubled_(torch.ones(6)) is None
print("autograd knows")
"""


def test_autograd_knows_of_changes_in_place(library: Path) -> None:
    assert "autograd knows" in run(CHANGES, library)


BOTH = """
x, bias = torch.randn(5, 8, requires_grad=True), torch.randn(8)
librarian.gated(x, bias).sum().backward()
assert torch.equal(x.grad, 2.0 * (librarian.gated(x, bias) > 0))
assert torch.equal(librarian.gated(x.half(), bias.half()), librarian.gated.inline(x.half(), bias.half()))
assert torch.equal(librarian.plain(x), x.cos())
assert torch.equal(torch.vmap(librarian.gated, (0, None))(x, bias), librarian.gated(x, bias))
print("both")
"""


@pytest.mark.parametrize("tier", ["python", "native"])
@pytest.mark.parametrize(
    "order",
    ["import librarian\ntorch.ops.load_library(LIBRARY)\n", "torch.ops.load_library(LIBRARY)\nimport librarian\n"],
    ids=["package first", "library first"],
)
def test_the_library_and_the_package_in_either_order(library: Path, order: str, tier: str) -> None:
    printed = run(order + BOTH, library, with_opsmith=True, OPSMITH_RUNTIME=tier)
    assert printed.strip() == "both", "and nothing on stderr"


def test_what_a_process_has_declared_is_not_its_childrens(library: Path) -> None:
    """A child by fork has the parent's operators; one that starts a program has none."""
    script = """
import os, subprocess, sys
import librarian
if (child := os.fork()) == 0:
    torch.ops.load_library(LIBRARY)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
alone = f"import torch; torch.ops.load_library({LIBRARY!r}); "
alone += "print(torch.ops.librarian.gated(torch.ones(2, 8), torch.ones(8)).sum())"
subprocess.run([sys.executable, "-c", alone], check=True)
"""
    assert run(script, library, with_opsmith=True).strip() == "tensor(48.)"


def test_a_program_that_holds_an_operator_of_the_library_still_runs_after_the_import(library: Path) -> None:
    script = "torch.ops.load_library(LIBRARY)\nx, bias = torch.ones(2, 8), torch.ones(8)\n"
    script += "traced = torch.jit.trace(lambda x: ops.gated(x, bias), (x,))\nimport librarian\nprint(traced(x).sum())"
    assert "tensor(48.)" in run(script, library, with_opsmith=True)


def test_a_library_of_another_version_of_the_package_is_refused(library: Path, tmp_path: Path) -> None:
    package = project(tmp_path, "librarian", OPS.replace("factor: float = 2.0", "factor: float = 3.0"))
    other = tmp_path / "project" / "dist" / library.name
    other.parent.mkdir()
    shutil.copy(library, other)
    printed = run("torch.ops.load_library(LIBRARY)\nimport librarian", other, with_opsmith=True, fails=True)
    assert "SchemaDiffersError: librarian::gated is declared as" in printed
    assert "float factor=3." in printed and "float factor=2." in printed
    first = "import librarian\ntorch.ops.load_library(LIBRARY)\nprint(librarian.gated(torch.ones(1), torch.ones(1)))"
    printed = run(first, other, with_opsmith=True)
    assert "opsmith: the library of librarian does not serve librarian::gated: the imported package declares" in printed
    assert "tensor([4.])" in printed, "the package that came first stays whole"
    assert package


def test_two_libraries_of_one_namespace_do_not_end_the_process(library: Path, tmp_path: Path) -> None:
    shutil.copy(library, tmp_path / "other.so")
    script = "torch.ops.load_library(LIBRARY)\ntorch.ops.load_library(OTHER)\n"
    script += "print(ops.gated(torch.ones(2, 8), torch.ones(8)).sum())"
    printed = run(f"OTHER = {str(tmp_path / 'other.so')!r}\n{script}", library)
    assert printed.count("does not serve") == 1, printed
    assert "does not serve librarian::gated: another library of this namespace is loaded" in printed
    assert "tensor(48.)" in printed


FALLBACK = """
import ctypes
torch.ops.load_library(LIBRARY)
made = torch.library.Library("librarian", "FRAGMENT")
made.define("_gated_reference(Tensor x, Tensor bias, float factor=2.0, bool negate=False) -> Tensor")
def reference(x, bias, factor=2.0, negate=False):
    return torch.relu(x * factor + bias) * (-1 if negate else 1)
made.impl("_gated_reference", reference, "CompositeExplicitAutograd")
ctypes.CDLL(LIBRARY).opsmith_library_fallback(b"gated")
x, bias = torch.ones(4, 8), torch.ones(8)
assert ops.gated(x.half(), bias.half()).dtype is torch.float16
assert ops.gated(x, bias).dtype is torch.float32
print("the reference served")
"""


def test_python_can_serve_what_no_kernel_does(library: Path) -> None:
    assert "the reference served" in run(FALLBACK, library)


def test_the_library_is_portable_and_on_torchs_stable_abi(library: Path) -> None:
    build_again = build(library.parents[1] / "src" / "librarian", "librarian", "--no-cuda", "--library")
    audited = re.sub(r"\s+", " ", build_again.stdout)
    assert re.search(r"✓ operators: 1 library, manylinux_2_28, torch's stable ABI since 2\.1[01]", audited) or (
        "✓ operators: 1 library, manylinux_2_28, the Sleef in torch and torch's stable ABI" in audited
    ), audited


def test_a_kernel_that_is_left_out_is_noted_once_by_the_name_that_its_author_gave(
    fresh: Callable[[str], str],
) -> None:
    @opsmith.op(fresh("halved_"), mutates_args=("x",))
    def halved_(x: torch.Tensor) -> None:
        x.mul_(0.5)

    halved_.register_kernel("cpu")(lambda x: x.mul_(0.5) and None)
    contents = collect([halved_], ())
    note = f"{halved_.name} on cpu: its kernel is a Python function, so the library does not have it"
    assert contents.notes == [note] and len(contents.served) > 1


def test_nothing_to_launch_from_cpp_is_an_error(tmp_path: Path) -> None:
    only_plain = OPS.partition("@opsmith.pointwise")[0] + OPS[OPS.index('@opsmith.op("{name}::plain")') :]
    package = project(tmp_path, "librarian", only_plain)
    (package / "__init__.py").write_text("from .ops import plain\n")
    done = build(package, "--no-cuda", "--library", fails=True)
    assert "nothing to build" in done.stderr.lower()


ELSEWHERE = """
from pathlib import Path

import torch
from torch import Tensor

import opsmith


@opsmith.pointwise("elsewhere::blended")
def blended(x: Tensor, bias: Tensor, mask: Tensor | None = None) -> Tensor:
    y = x * 0.5 + bias
    return y if mask is None else torch.where(mask, y, x)


@blended.register_samples
def _(device, dtype):
    if dtype is torch.float32:
        x, bias = torch.ones(2, 3, 4, device=device), torch.ones(3, 1, device=device)
        yield opsmith.Sample((x, bias))
        yield opsmith.Sample((x, bias, torch.ones(4, dtype=torch.bool, device=device)))


@opsmith.rowwise("elsewhere::centred")
def centred(x: Tensor) -> Tensor:
    return x - x.mean(-1, keepdim=True)


@centred.register_samples
def _(device, dtype):
    if dtype is torch.float32:
        yield opsmith.Sample((torch.ones(4, 8, device=device),))


ext = opsmith.extension("elsewhere_ext", Path(__file__).parent / "summed.cpp", lazy=True)


@opsmith.op("nowhere::summed")
def summed(tensors: list[Tensor], names: str, offset: int | None = None) -> tuple[Tensor, Tensor]:
    total = torch.stack(tensors).sum(0) + (offset or 0)
    return total, total + len(names)


summed.register_kernel("cpu", ext.summed)
"""
ELSEWHERE_USED = """
ops = torch.ops.elsewhere
x, bias, mask = torch.randn(5, 3, 4), torch.randn(3, 1), torch.tensor([True, False, True, False])
torch.testing.assert_close(ops.blended(x, bias), x * 0.5 + bias)
torch.testing.assert_close(ops.blended(x, bias, mask), torch.where(mask, x * 0.5 + bias, x))
rows = torch.randn(3, 1000)
torch.testing.assert_close(ops.centred(rows), rows - rows.mean(-1, keepdim=True))
assert torch.ops.nowhere.summed([torch.ones(2), torch.ones(2)], "ab")[1].tolist() == [4.0, 4.0]
print("served")
"""


@pytest.mark.long
def test_a_library_has_every_namespace_that_its_package_declares_ops_in(tmp_path: Path) -> None:
    """Neither namespace is the package's name; with an optional tensor and a program of rows."""
    package = project(tmp_path, "librarian", OPS)
    (package / "ops.py").write_text(ELSEWHERE)
    (package / "__init__.py").write_text("from . import ops\n")
    build(package, "--no-cuda", "--library")
    made = package.parents[1] / "dist" / "liblibrarian.so"
    load, declare = "torch.ops.load_library(LIBRARY)\n", "import librarian\n"
    assert run(load + ELSEWHERE_USED, made) == "served\n"
    for order in (load + declare, declare + load):
        printed = run(order + ELSEWHERE_USED, made, with_opsmith=True, OPSMITH_QUIET="1")
        assert printed == "served\n", "and nothing on stderr"


@pytest.mark.long
def test_a_second_build_of_a_library_gives_the_same_bytes(tmp_path: Path) -> None:
    package = project(tmp_path, "librarian", OPS)
    (package / "ops.py").write_text(ELSEWHERE.partition("@opsmith")[0] + ELSEWHERE[ELSEWHERE.index("ext = ") :])
    (package / "__init__.py").write_text("from . import ops\n")
    assert "built a second time: the same bytes" in build(package, "--no-cuda", "--library", "--verify").stdout


def test_a_package_without_a_project_must_name_a_directory(tmp_path: Path) -> None:
    package = tmp_path / "project" / "src" / "projectless"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    done = build(package, "--no-cuda", "--library", fails=True)
    assert (
        "projectless is in no project, whose dist/ would take the library. Name a directory:  --into DIR" in done.stderr
    )
