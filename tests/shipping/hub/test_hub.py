"""A package built for the Hub is loaded by kernels, and its ops do what they did in the package."""

from __future__ import annotations

import ast
import ctypes
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import stand_in
import torch
from hub_packages import OPS, package, passport_of, written
from torch import Tensor
from torch.library import opcheck

from opsmith.errors import HubError, NotSelfContainedError
from opsmith.shipping.hub.layout import Variant

Load = Callable[[Path], ModuleType]


def drawn(*shape: int, **options: Any) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True, **options)


CALLS: dict[str, Callable[[], tuple[list[Any], dict[str, Any]]]] = {
    "bent": lambda: ([drawn(4, 3).detach().t().requires_grad_(), drawn(4)], {"slope": 0.7}),  # results are permuted too
    "normed": lambda: ([drawn(3, 4), drawn(4)], {"mode": "max"}),
    "halves": lambda: ([[drawn(2), drawn(3)], drawn(1)], {}),
    "both": lambda: ([drawn(3, 4)], {}),
    "matched": lambda: ([drawn(3, 4), drawn(4, 2)], {}),
    "doubled": lambda: ([drawn(3)], {}),
    "record": lambda: ([drawn(3)], {"package": 2.0}),
}


def leaves_of(args: list[Any]) -> list[Tensor]:
    return [each for arg in args for each in (arg if isinstance(arg, list) else [arg]) if isinstance(each, Tensor)]


def listed(returned: Any) -> list[Tensor]:
    return [returned] if isinstance(returned, Tensor) else list(returned)


def total(returned: Any) -> Tensor:
    return torch.stack([each.pow(2).sum() for each in listed(returned) if each.is_floating_point()]).sum()


def test_the_file_needs_only_torch(variant: Variant) -> None:
    tree = ast.parse((variant.directory / "__init__.py").read_text())
    roots = {
        each.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names
    }
    roots |= {(node.module or "").partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert roots - sys.stdlib_module_names == {"torch"}


def test_kernels_reads_the_metadata(variant: Variant, kernel: ModuleType, kernels: Any) -> None:
    metadata = next(each.metadata for each in kernels.get_loaded_kernels() if each.module is kernel)
    assert str(metadata.name).startswith("hublib") and metadata.python_depends == []
    assert str(metadata.backend.backend_type) == "cpu" and metadata.id == variant.namespace
    assert variant.directory.name.startswith("torch-stable-abi211-cpu-")


@pytest.mark.parametrize("name", CALLS)
def test_results_and_gradients_of_first_and_second_order_are_the_packages(
    kernel: ModuleType, author: ModuleType, name: str
) -> None:
    args, kwargs = CALLS[name]()
    leaves = leaves_of(args)
    ours = author.ops
    mine, theirs = getattr(kernel, name)(*args, **kwargs), getattr(ours, name)(*args, **kwargs)
    for one, other in zip(listed(mine), listed(theirs), strict=True):
        assert torch.equal(one, other) and one.stride() == other.stride()
    first = [torch.autograd.grad(total(each), leaves, create_graph=True) for each in (mine, theirs)]
    torch.testing.assert_close(*first)
    if name == "doubled":  # the author's gradient
        assert first[0][0].flatten()[0] == 200 * 4 * leaves[0].flatten()[0]
    second = [torch.autograd.grad(sum(g.sin().sum() for g in grads), leaves) for grads in first]
    torch.testing.assert_close(*second)


@pytest.mark.parametrize("name", CALLS)
def test_opcheck_accepts_every_operator(kernel: ModuleType, variant: Variant, name: str) -> None:
    operators = getattr(torch.ops, variant.namespace)
    args, kwargs = CALLS[name]()
    opcheck(getattr(operators, name).default, args, kwargs)
    if name == "bent":
        x, bias = args
        grad = torch.ones_like(x)
        opcheck(operators.bent_backward.default, (grad, x, bias, 0.7, None, [True, True]))
        opcheck(operators.bent_out.default, (x.detach(), bias.detach()), {"out": torch.empty_like(x)})


def test_torch_compile_takes_every_op_in_one_graph(kernel: ModuleType) -> None:
    def step(x: Tensor, weight: Tensor) -> Tensor:
        moved = kernel.shift_(x * 1, weight)
        halved, _ = kernel.halves([kernel.bent(moved, weight), x])
        sines, _ = kernel.both(kernel.normed(halved, weight))
        return kernel.doubled(sines)

    x, weight = drawn(3, 4), drawn(4)
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    expected, found = step(x, weight), compiled(x, weight)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found.sum(), [x, weight]), torch.autograd.grad(expected.sum(), [x, weight])
    )


def test_an_in_place_op_changes_its_tensor_and_records_a_gradient(kernel: ModuleType, variant: Variant) -> None:
    x, by = drawn(3), drawn(3)
    changed = x * 1
    assert kernel.shift_(changed, by) is changed
    torch.testing.assert_close(changed, x + by * by)
    torch.testing.assert_close(torch.autograd.grad(changed.sum(), by)[0], 2 * by)
    with pytest.raises(RuntimeError, match="writes to a tensor in a call that records gradients"):
        getattr(torch.ops, variant.namespace).shift_(x * 1, by)
    with pytest.raises(ValueError, match="shares memory with another"):
        kernel.shift_(changed, changed)


def test_out_takes_the_result(kernel: ModuleType) -> None:
    x, out = torch.randn(4), torch.empty(4)
    assert kernel.doubled(x, out=out) is out and torch.equal(out, x * 2)
    with pytest.raises(ValueError, match=r"out is torch.float32 \(3,\), and the result is torch.float32 \(4,\)"):
        kernel.doubled(x, out=torch.empty(3))


def test_an_autocast_region_applies_the_ops_policy(kernel: ModuleType) -> None:
    x, y = torch.randn(3, 4), torch.randn(4, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert kernel.matched(x, y).dtype is torch.bfloat16
        assert kernel.kept(x, y).dtype is torch.float32


def test_torch_func_goes_through_the_reference(kernel: ModuleType) -> None:
    x, bias = torch.randn(5, 4), torch.randn(4)
    expected = 1 - torch.tanh(x * 0.5 + bias) ** 2
    for_each = torch.vmap(torch.func.grad(lambda bias, x: kernel.bent(x, bias).sum()), (None, 0))
    torch.testing.assert_close(for_each(bias, x), expected)
    _, tangent = torch.func.jvp(kernel.bent, (x, bias), (torch.zeros_like(x), torch.ones_like(bias)))
    torch.testing.assert_close(tangent, expected)


def test_a_reference_that_draws_random_numbers_has_no_gradient(kernel: ModuleType) -> None:
    assert kernel.noisy(torch.ones(3)).shape == (3,)
    with pytest.raises(RuntimeError, match="its reference draws random numbers"):
        kernel.noisy(torch.ones(3, requires_grad=True)).sum().backward()


def test_a_gradient_that_is_an_inputs_unchanged_is_passed_on(load: Load, tmp_path: Path) -> None:
    text = '@opsmith.pointwise("NAME::added")\ndef added(x: Tensor, y: Tensor) -> Tensor:\n    return x + y * 2\n'
    written(tmp_path / "hub", package(tmp_path / "author", HEAD + text), served={"added_backward": True})
    x, y, grad = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True), torch.randn(3)
    found = torch.autograd.grad(load(tmp_path / "hub").added(x, y), [x, y], grad)
    assert found[0].data_ptr() == grad.data_ptr() and torch.equal(found[1], grad * 2)


# --- layers -----------------------------------------------------------------------------------------------------------


def kernelized(kernels: Any, layer: Any, hub: Path, name: str) -> Any:
    """The layer with the forward of the package's layer of that name, for training and torch.compile."""
    kernels.replace_kernel_forward_from_hub(type(layer), name)
    repository = kernels.LocalLayerRepository(hub, layer_name=name)
    mode = kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE
    with kernels.use_kernel_mapping({name: {"cpu": {mode: repository}}}):
        return kernels.kernelize(layer, mode=mode, device="cpu", use_fallback=False)


def test_kernelize_uses_the_packages_layers(kernel: ModuleType, kernels: Any, hub: Path) -> None:
    class Mine(torch.nn.Module):
        """A layer of a model: the same attributes, another forward."""

        def __init__(self) -> None:
            super().__init__()
            self.bias, self.slope = torch.nn.Parameter(torch.randn(4)), 0.5

        def forward(self, x: Tensor) -> Tensor:
            raise AssertionError("the model's own forward ran")

    layer = kernelized(kernels, Mine(), hub, "Bent")
    x = torch.randn(3, 4)
    expected = torch.tanh(x * 0.5 + layer.bias)
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(torch.compile(layer, fullgraph=True, backend="aot_eager")(x), expected)
    layer(x).sum().backward()
    torch.testing.assert_close(layer.bias.grad, (1 - expected**2).sum(0))


def test_layers_are_the_modules_with_a_self_contained_forward(kernel: ModuleType, variant: Variant) -> None:
    assert set(vars(kernel.layers)) == {"Bent", "Chained"}
    assert "reads bias, slope of the layer" in kernel.layers.Bent.__doc__
    notes = "\n".join(variant.notes)
    assert "Reaching is left out of the layers: its forward uses own of its own class" in notes
    assert "Logging is left out of the layers. The layer Logging refers to 'Sample'" in notes
    assert "Unrelated" not in notes


@pytest.mark.parametrize(
    ("items", "changes", "flags"),
    [
        (["gradients", "compile"], {}, (True, True)),
        (["gradients"], {}, (True, False)),
        (["compile"], {}, (False, True)),
        (["gradients", "compile"], {"device": "cuda"}, (False, False)),
        (["gradients", "compile"], {"only": "bent"}, (False, False)),  # of its two ops
        (None, {}, (False, False)),
    ],
)
def test_flags_are_what_the_checks_showed(
    author: ModuleType, load: Load, tmp_path: Path, items: Any, changes: Any, flags: tuple[bool, bool]
) -> None:
    proof = None if items is None else passport_of(author, *items, **changes)
    made = written(tmp_path, author, passport=proof)
    layer = load(tmp_path).layers.Chained
    assert (layer.has_backward, layer.can_torch_compile) == flags
    about_it = [note for note in made.notes if note.startswith("Chained:")]
    assert bool(about_it) is (flags != (True, True))


def test_kernelize_refuses_a_mode_without_proof(author: ModuleType, kernels: Any, tmp_path: Path) -> None:
    written(tmp_path, author)

    class Mine(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x

    with pytest.raises(ValueError, match="does not support backward"):
        kernelized(kernels, Mine(), tmp_path, "Bent")


# --- the layout -------------------------------------------------------------------------------------------------------


def test_two_versions_live_in_one_process(load: Load, tmp_path: Path) -> None:
    old, new = package(tmp_path / "a", OPS), package(tmp_path / "b", OPS.replace("x * slope", "x - slope"))
    first, second = written(tmp_path / "old", old), written(tmp_path / "new", new)
    assert first.namespace != second.namespace
    x, bias = torch.randn(3), torch.zeros(3)
    assert torch.equal(load(tmp_path / "old").bent(x, bias), torch.tanh(x * 0.5))
    assert torch.equal(load(tmp_path / "new").bent(x, bias), torch.tanh(x - 0.5))


def test_one_build_loads_from_two_places(kernel: ModuleType, hub: Path, load: Load, tmp_path: Path) -> None:
    shutil.copytree(hub, tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__"))
    again = load(tmp_path / "copy")
    x = torch.randn(3)
    assert again is not kernel and torch.equal(again.doubled(x), kernel.doubled(x))


def test_the_namespace_is_that_of_the_contents(author: ModuleType, variant: Variant, tmp_path: Path) -> None:
    same = written(tmp_path / "same", author, passport=passport_of(author, "gradients", "compile"))
    assert same.namespace == variant.namespace
    contents = [{p.name: p.read_bytes() for p in each.directory.glob("*.*")} for each in (same, variant)]
    assert contents[0] == contents[1]
    proof = passport_of(author, "gradients", "compile")
    served = {"bent_backward": True}
    assert written(tmp_path / "other", author, passport=proof, served=served).namespace != variant.namespace
    (Path(str(author.__file__)).parent / "kernel.cu").write_text("// another kernel")
    assert written(tmp_path / "other", author, passport=proof).namespace != variant.namespace


def test_a_cuda_variant_names_its_architectures(author: ModuleType, tmp_path: Path) -> None:
    made = written(tmp_path, author, backend="cu130", targets=("sm_80", "sm_90a", "compute_120"))
    facts = json.loads((made.directory / "metadata.json").read_text())
    assert facts["backend"] == {"type": "cuda", "archs": ["8.0", "9.0a", "12.0+PTX"]}
    assert made.directory.name.startswith("torch-stable-abi211-cu130-")
    with pytest.raises(HubError, match="a backend is 'cpu'"):
        written(tmp_path, author, backend="rocm")


def test_it_loads_where_opsmith_is_not_installed(variant: Variant) -> None:
    script = f"""
import importlib.util, sys
sys.modules["opsmith"] = None
spec = importlib.util.spec_from_file_location("built", {str(variant.directory / "__init__.py")!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
import torch
x = torch.randn(3, requires_grad=True)
module.bent(x, torch.zeros(3)).sum().backward()
print(x.grad.shape)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "torch.Size([3])\n", done.stderr


# --- bad input --------------------------------------------------------------------------------------------------------

HEAD = "import torch\nimport opsmith\nfrom torch import Tensor\n"
ONE = '@opsmith.op("{name}")\ndef {function}(x: Tensor) -> Tensor:\n    return x + {value}\n'


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", HubError, "it declares no op"),
        (ONE.format(name="NAME::layers", function="f", value=1), HubError, "would be the function layers"),
        (
            ONE.format(name="NAME::f", function="f", value=1) + ONE.format(name="NAMEb::f", function="g", value=1),
            HubError,
            "NAME.*::f and .*::f would both be the function f".replace("NAME", "hublib"),
        ),
        (
            "TABLE = torch.ones(1)\n" + ONE.format(name="NAME::f", function="f", value="TABLE"),
            NotSelfContainedError,
            "The op hublib.*::f refers to 'TABLE'.*it is a Tensor",
        ),
    ],
)
def test_what_cannot_be_written_is_refused_and_leaves_nothing(
    tmp_path: Path, text: str, error: type[Exception], message: str
) -> None:
    author = package(tmp_path / "author", HEAD + text)
    with pytest.raises(error, match=message):
        written(tmp_path / "hub", author)
    assert not (tmp_path / "hub").exists()


def test_a_library_that_cannot_be_built_leaves_the_variant_as_it_was(author: ModuleType, tmp_path: Path) -> None:
    made = written(tmp_path, author)
    before = (made.directory / "__init__.py").read_bytes()

    def fails(namespace: str) -> Path:
        raise RuntimeError("no compiler")

    with pytest.raises(RuntimeError, match="no compiler"):
        written(tmp_path, author, library=fails)
    with pytest.raises(FileNotFoundError):
        written(tmp_path, author, library=lambda namespace: tmp_path / "none.so")
    assert (made.directory / "__init__.py").read_bytes() == before
    assert [each.name for each in made.directory.parent.iterdir()] == [made.directory.name]


# --- with a shared library --------------------------------------------------------------------------------------------


class WithLibrary(NamedTuple):
    kernel: ModuleType
    operators: Any
    launches: Callable[[], int]


@pytest.fixture(scope="module")
def built(load: Load, tmp_path_factory: pytest.TempPathFactory) -> WithLibrary:
    place = tmp_path_factory.mktemp("library")
    made = written(
        place / "hub",
        package(place / "author", stand_in.OPS),
        library=lambda namespace: stand_in.build(place, namespace),
        served=dict.fromkeys(("scaled", "grown", "grown_backward", "emptied_"), True),
    )
    kernel = load(place / "hub")
    launches = ctypes.CDLL(str(next(made.directory.glob("*.so")))).launches
    return WithLibrary(kernel, getattr(torch.ops, made.namespace), launches)


def test_kernels_of_the_shared_library_run_and_the_reference_serves_the_rest(built: WithLibrary) -> None:
    kernel, before = built.kernel, built.launches()
    x = torch.randn(3, 4, requires_grad=True)
    assert torch.equal(kernel.scaled(x, 3.0), x * 3) and built.launches() == before + 1
    assert torch.equal(kernel.scaled(x), x * 2) and built.launches() == before + 2
    for other in (x.double(), x.t()):  # another dtype, another layout
        assert torch.equal(kernel.scaled(other, 3.0), other * 3) and built.launches() == before + 2
    kernel.scaled(x, 3.0).sum().backward()
    assert torch.equal(torch.as_tensor(x.grad), torch.full_like(x, 3.0))
    assert torch.equal(kernel.scaled(x.detach(), out=torch.empty(3, 4)), x * 2) and built.launches() == before + 4
    assert kernel.scaled(torch.ones(2, device="meta")).shape == (2,)  # a device without kernels
    with pytest.raises(ValueError, match="scaled: x is empty"):  # the reference's own error, through C++
        kernel.scaled(torch.ones(0, dtype=torch.float64))
    opcheck(built.operators.scaled.default, (x, 3.0))


def test_a_call_saves_what_its_kernel_in_c_reads_and_nothing_else(built: WithLibrary) -> None:
    x = torch.randn(5, requires_grad=True)
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda each: saved.append(each) or each, lambda each: each):
        y = built.kernel.grown(x)
    assert [each.data_ptr() for each in saved] == [y.data_ptr()]
    before = built.launches()
    assert torch.equal(torch.autograd.grad(y, x, torch.ones(5))[0], y) and built.launches() == before + 1
    opcheck(built.operators.grown_backward.default, (torch.ones(5), x, y, [True]))


def test_autograd_sees_that_a_kernel_has_changed_a_tensor(built: WithLibrary) -> None:
    x, y = torch.ones(3), torch.ones(3, requires_grad=True)
    product = (x * y).sum()
    before = built.launches()
    assert built.kernel.emptied_(x) is x and not x.any() and built.launches() == before + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_a_gradient_that_needs_what_was_not_saved_is_refused(built: WithLibrary) -> None:
    x = torch.randn(5, requires_grad=True)
    with pytest.raises(RuntimeError, match="grown has no second gradient here: its backward kernel does not read x"):
        torch.autograd.grad(built.kernel.grown(x).sum(), x, create_graph=True)
    strided = torch.randn(5, 2, requires_grad=True)
    grad = torch.randn(2, 5).t()  # a layout that the kernel does not take
    with pytest.raises(RuntimeError, match=r"no gradient for this call: .* the reference needs x, which was not saved"):
        built.kernel.grown(strided).backward(grad)
