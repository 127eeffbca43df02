"""An op from its reference alone: everything torch can ask of an operator, on twenty ops and both tiers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from zoo import FUNCTIONAL, IN_PLACE, ZOO, declare

from opsmith import Op, Sample
from opsmith.checks import compare_samples
from opsmith.reference.signature import flatten, unflatten

pytestmark = pytest.mark.usefixtures("tier")


@pytest.fixture(params=ZOO)
def op(request: pytest.FixtureRequest, fresh: Callable[[str], str]) -> Op:
    return declare(request.param, fresh(request.param))


@pytest.fixture(params=FUNCTIONAL)
def functional(request: pytest.FixtureRequest, fresh: Callable[[str], str]) -> Op:
    return declare(request.param, fresh(request.param))


@pytest.fixture(params=IN_PLACE)
def in_place(request: pytest.FixtureRequest, fresh: Callable[[str], str]) -> Op:
    return declare(request.param, fresh(request.param))


def differentiable(op: Op, sample: Sample) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """The op as a function of its floating tensors alone, and those tensors."""
    args = op.signature.bind(sample.args, dict(sample.kwargs))
    arguments = op.signature.arguments
    tensors = flatten(arguments, args)
    chosen = [i for i, t in enumerate(tensors) if t is not None and t.is_floating_point()]

    def function(*leaves: torch.Tensor) -> Any:
        filled = list(tensors)
        for index, leaf in zip(chosen, leaves, strict=True):
            filled[index] = leaf
        values = unflatten(arguments, args, filled)
        values = [v.clone() if a.mutated else v for a, v in zip(arguments, values, strict=True)]
        positional, keyword = op.signature.arranged(values)
        results = op(*positional, **keyword)
        listed = results if isinstance(results, (tuple, list)) else (results,)
        return tuple(r for r in listed if r.is_floating_point())

    return function, [tensors[i].detach().clone().requires_grad_() for i in chosen]  # type: ignore[union-attr]


def reference_of(op: Op, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with the reference in the op's place."""

    def plain(*leaves: torch.Tensor) -> Any:
        with torch_op_replaced(op):
            return function(*leaves)

    return plain


class torch_op_replaced:
    """Inside, calling the op runs its reference."""

    def __init__(self, op: Op) -> None:
        self.op = op

    def __enter__(self) -> None:
        self.former = type(self.op).__call__
        type(self.op).__call__ = lambda op, *a, **k: op.inline(*a, **k)  # type: ignore[method-assign, assignment]

    def __exit__(self, *error: object) -> None:
        type(self.op).__call__ = self.former  # type: ignore[method-assign]


def same(mine: Any, theirs: Any) -> None:
    torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)


def test_results_and_gradients_are_the_references(op: Op) -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        if dtype is torch.bfloat16 and op.__name__ in ("top", "cumulative"):
            continue  # ties among bfloat16 values; logcumsumexp has no bfloat16 kernel in torch
        for comparison in compare_samples(op, dtype=dtype):
            assert comparison, f"{dtype}: {comparison}"


def test_gradcheck(op: Op) -> None:
    for sample in op.samples_for("cpu", torch.float64):
        function, leaves = differentiable(op, sample)
        assert torch.autograd.gradcheck(function, leaves, check_forward_ad=True, check_batched_grad=True)


def test_gradgradcheck(op: Op) -> None:
    for sample in op.samples_for("cpu", torch.float64):
        function, leaves = differentiable(op, sample)
        assert torch.autograd.gradgradcheck(function, leaves)


@pytest.mark.parametrize("transform", ["jacrev", "jacfwd", "hessian", "jacrev_of_jacrev", "jacfwd_of_jacfwd"])
def test_functional_transforms_agree_with_the_reference(functional: Op, transform: str) -> None:
    func = torch.func
    transforms = {
        "jacrev": func.jacrev,
        "jacfwd": func.jacfwd,
        "hessian": func.hessian,
        "jacrev_of_jacrev": lambda f: func.jacrev(func.jacrev(f)),
        "jacfwd_of_jacfwd": lambda f: func.jacfwd(func.jacfwd(f)),
    }
    for sample in functional.samples_for("cpu", torch.float64):
        function, leaves = differentiable(functional, sample)
        scalar = lambda x: function(x, *[leaf.detach() for leaf in leaves[1:]])[0].sum()  # noqa: B023, E731
        start = leaves[0].detach()
        same(transforms[transform](scalar)(start), transforms[transform](reference_of(functional, scalar))(start))


def test_vmap_over_each_argument(functional: Op) -> None:
    for sample in functional.samples_for("cpu", torch.float64):
        function, leaves = differentiable(functional, sample)
        plain = reference_of(functional, function)
        for batched in range(len(leaves)):
            inputs = [leaf.detach() for leaf in leaves]
            inputs[batched] = torch.stack([inputs[batched], inputs[batched] * 0.5, -inputs[batched]], dim=-1)
            dims = tuple(-1 if index == batched else None for index in range(len(leaves)))
            same(torch.vmap(function, dims)(*inputs), torch.vmap(plain, dims)(*inputs))


def test_per_sample_gradients(functional: Op) -> None:
    for sample in functional.samples_for("cpu", torch.float64):
        function, leaves = differentiable(functional, sample)
        rest = [leaf.detach() for leaf in leaves[1:]]
        scalar = lambda x: function(x, *rest)[0].sum()  # noqa: B023, E731
        batch = torch.stack([leaves[0].detach(), leaves[0].detach() * 2])
        mine = torch.vmap(torch.func.grad(scalar))(batch)
        same(mine, torch.vmap(torch.func.grad(reference_of(functional, scalar)))(batch))


def test_forward_mode_carries_tangents(op: Op) -> None:
    """A C++ Autograd kernel that ignores tangents returns silent zeros."""
    from torch.autograd import forward_ad

    for sample in op.samples_for("cpu", torch.float64):
        function, leaves = differentiable(op, sample)
        tangents = [torch.randn_like(leaf) for leaf in leaves]

        def tangent(f: Callable[..., Any]) -> list[torch.Tensor | None]:
            with forward_ad.dual_level():
                duals = [forward_ad.make_dual(x.detach(), t) for x, t in zip(leaves, tangents, strict=True)]  # noqa: B023
                return [forward_ad.unpack_dual(result).tangent for result in f(*duals)]

        mine, theirs = tangent(function), tangent(reference_of(op, function))
        assert all(found is not None for found in mine)
        same(mine, theirs)


@pytest.mark.parametrize("layout", ["contiguous", "permuted", "sliced"])
def test_opcheck(functional: Op, layout: str) -> None:
    for sample in functional.samples_for("cpu", torch.float32):
        args = functional.signature.bind(sample.args, dict(sample.kwargs))
        tensors = [laid_out(tensor, layout) for tensor in flatten(functional.signature.arguments, args)]
        values = unflatten(functional.signature.arguments, args, tensors)
        positional, keyword = functional.signature.arranged(values)
        torch.library.opcheck(functional._families.default.forward.overload, tuple(positional), keyword)


def test_opcheck_of_the_backward(functional: Op) -> None:
    sample = functional.samples_for("cpu", torch.float32)[0]
    args = functional.signature.bind(sample.args, dict(sample.kwargs))
    results = functional._inline_call(args)
    grads = [torch.randn_like(r) if r.is_floating_point() else None for r in _listed(results)]
    tensors = flatten(functional.signature.arguments, args)
    needs = [t is not None and t.is_floating_point() for t in tensors]
    if functional.signature.returns_list:
        values = (grads, *args, [None] * len(grads), needs)
    else:
        values = (*grads, *args, *[None] * len(grads), needs)
    torch.library.opcheck(functional._families.default.backward.overload, values)


def test_opcheck_in_place(in_place: Op) -> None:
    for sample in in_place.samples_for("cpu", torch.float32):
        torch.library.opcheck(in_place._families.default.forward.overload, sample.args, dict(sample.kwargs))


def laid_out(tensor: torch.Tensor | None, layout: str) -> torch.Tensor | None:
    if tensor is None or layout == "contiguous":
        return tensor if tensor is None or not tensor.is_floating_point() else tensor.clone().requires_grad_()
    if layout == "permuted":
        order = list(reversed(range(tensor.ndim)))
        laid = tensor.permute(order).contiguous().permute(order)
    else:
        wide = tensor.new_zeros([2 * size + 1 for size in tensor.shape])
        laid = wide[tuple(slice(1, None, 2) for _ in tensor.shape)]
        laid.copy_(tensor)
    return laid.requires_grad_() if tensor.is_floating_point() else laid


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_fullgraph(op: Op, dynamic: bool) -> None:
    for sample in op.samples_for("cpu", torch.float64)[:2]:
        function, leaves = differentiable(op, sample)
        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, backend="aot_eager")
        mine, theirs = compiled(*leaves), reference_of(op, function)(*leaves)
        same(mine, theirs)
        if any(result.requires_grad for result in theirs):
            total = lambda results: sum(r.sum() for r in results)  # noqa: E731
            found = torch.autograd.grad(total(mine), leaves, allow_unused=True)
            expected = torch.autograd.grad(total(theirs), leaves, allow_unused=True)
            for one, other, leaf in zip(found, expected, leaves, strict=True):
                same(torch.zeros_like(leaf) if one is None else one, torch.zeros_like(leaf) if other is None else other)


@pytest.mark.parametrize("name", ["scale_bias_relu", "moments"])
def test_compiled_by_inductor(name: str, fresh: Callable[[str], str]) -> None:
    op = declare(name, fresh(name))
    function, leaves = differentiable(op, op.samples_for("cpu", torch.float64)[0])
    compiled = torch.compile(lambda *values: [r * 2 for r in function(*values)], fullgraph=True)
    mine, theirs = compiled(*leaves), [r * 2 for r in reference_of(op, function)(*leaves)]
    same(mine, theirs)
    same(*[torch.autograd.grad(sum(r.sum() for r in results), leaves) for results in (mine, theirs)])


def test_export(functional: Op) -> None:
    sample = functional.samples_for("cpu", torch.float32)[0]
    # torch.export takes tensors and containers of them as inputs; everything else is part of the model.
    tensors = tuple(v for v in sample.args if isinstance(v, (torch.Tensor, list)) and _holds_tensors(v))
    values = tuple(v for v in sample.args if not (isinstance(v, (torch.Tensor, list)) and _holds_tensors(v)))

    class Model(torch.nn.Module):
        def forward(self, *args: Any) -> Any:
            return functional(*args, *values, **dict(sample.kwargs))

    exported = torch.export.export(Model(), tensors)
    assert any(node.target is functional._families.default.forward.overload for node in exported.graph.nodes)
    same(exported.module()(*tensors), functional(*sample.args, **dict(sample.kwargs)))


def _listed(results: Any) -> list[torch.Tensor]:
    return list(results) if isinstance(results, (tuple, list)) else [results]


def _holds_tensors(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or any(isinstance(item, torch.Tensor) for item in value)
