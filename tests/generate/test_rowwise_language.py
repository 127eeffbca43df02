"""What a row program may contain, call by call: values, gradients and second gradients are torch's, and so is what is
refused. tests/generate/test_row_programs.py puts such calls together at random."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import opsmith
from opsmith.errors import NotRowwiseError

CALLS = {
    "sums": """
        x.sum(-1) | x.sum(dim=-1) | torch.sum(x, (-1,)) | x.sum([-1], keepdim=True)[..., 0] | x.size(-1) * x.mean(-1)
        x.sum(-1, keepdim=True) | x.sum(-1, True) | x.sum(-1)[..., None] | x.sum(-1).unsqueeze(-1)
        torch.mean(x, -1, True).squeeze(-1) | x.sum(-1) / x.shape[-1]
        x * (x.shape[-1] - 1) + x.mean(-1, keepdim=True) | x * (x.size(-1) - 1) + x.mean(-1)[..., None]
        (x - x.mean(-1, keepdim=True)).square().mean(-1)
        (x * row).sum(-1) * column
        x[..., None, :].sum(-1)[..., 0] | x[:].sum(-1)
    """,
    "extremes": """
        x.amax(-1) - x.amin(-1)
        torch.max(x, -1).values | torch.max(x, dim=-1)[0]
        x.min(-1, keepdim=True).values * x
        (x > 0).any(-1).to(x.dtype) * x.sum(-1) | torch.any(x > 0, dim=-1) * x.sum(-1)
        (x > -1).all(-1, keepdim=True) * x
        (x > 0).sum(-1) + x.sum(-1) | (x > 0).to(torch.int32).sum(-1) + x.sum(-1)
        (x > 0).to(torch.int32).amax(-1) + x.sum(-1)
        x.abs().amax(-1, keepdim=True).clamp(min=1e-12) * x
    """,
    "spreads": """
        x.var(-1, correction=0) | x.var(-1, unbiased=False) | torch.var(x, -1, False)
        x.var(-1, keepdim=True) * x
        x.std(-1, correction=0)
        x.norm(dim=-1) | torch.linalg.vector_norm(x, dim=-1) | x.norm(p=2, dim=-1) | torch.linalg.norm(x, dim=-1)
        x.norm(1, -1, keepdim=True)
        x.norm(float("inf"), dim=-1)
        torch.linalg.vector_norm(x, float("-inf"), dim=-1)
        F.normalize(x, dim=-1)
        F.normalize(x, p=1.0, dim=-1, eps=0.5)
    """,
    "exponentials": """
        x.logsumexp(-1) | torch.logsumexp(x, -1, keepdim=True)[..., 0] | torch.special.logsumexp(x, -1)
        x.softmax(-1) | torch.softmax(x, dim=-1) | F.softmax(x, dim=-1)
        F.softmin(x, dim=-1)
        x.log_softmax(-1) | F.log_softmax(x, -1)
        (x - x.amax(-1, keepdim=True)).exp().sum(-1).log()
        x.masked_fill(mask, float("-inf")).softmax(-1)
    """,
    "norms": """
        F.layer_norm(x, x.shape[-1:]) | F.layer_norm(x, (x.shape[-1],), eps=1e-5)
        F.layer_norm(x, x.shape[-1:], row, 2 * row, 1e-3)
        F.layer_norm(x, x.shape[-1:], weight=row)
        F.rms_norm(x, x.shape[-1:])
        F.rms_norm(x, x.shape[-1:], row, 1e-5)
        x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * row
    """,
    "places": """
        x.gather(-1, index[..., None])[..., 0] | torch.gather(x, -1, index.unsqueeze(-1)).squeeze(-1)
        x.logsumexp(-1) - x.gather(-1, index[..., None])[..., 0]
        torch.where(torch.arange(x.shape[-1], device=x.device) == index[..., None], x, 0.0).sum(-1)
        x.masked_fill(torch.arange(x.size(-1), device=x.device) > index[..., None], -1.0).mean(-1)
        torch.arange(x.shape[-1], device=x.device, dtype=x.dtype) * x + x.sum(-1, keepdim=True)
        x.masked_fill(mask, 0.5).sum(-1) * column
        (x * x.mean(-1, keepdim=True)).amax(-1)[..., None] * column[..., None]
    """,
    "losses": """
        F.cross_entropy(x, index, reduction="none")
        F.cross_entropy(x, index, reduction="none", ignore_index=0, label_smoothing=0.1)
        F.nll_loss(x.log_softmax(-1), index, reduction="none")
        F.cross_entropy(x, mask / (1 + mask.sum(-1, keepdim=True)), reduction="none", label_smoothing=0.2)
    """,
}
"""On each line calls that are one and the same, of one tensor x."""
NAMES = ("row", "column", "index", "mask")
COUNTER = itertools.count()
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e4, -1e4, 30.0]


def function(calls: Sequence[Sequence[str]]) -> Callable[..., Any]:
    """A reference that makes these calls, each line of a tensor of its own; its last result is of all of them, so that
    they have one shape."""
    names = [f"x{number}" for number in range(len(calls))]
    every = [re.sub(r"\bx\b", name, call) for name, line in zip(names, calls, strict=True) for call in line]
    every.append(" & ".join(f"({first} <= {second})" for first, second in itertools.pairwise([*names, names[0]])))
    names += [name for name in NAMES if any(re.search(rf"\b{name}\b", call) for call in every)]
    scope: dict[str, Any] = {"torch": torch, "F": F}
    exec(f"def program({', '.join(names)}): return {', '.join(every)},", scope)
    made: Callable[..., Any] = scope["program"]
    made.__annotations__ = {**dict.fromkeys(names, Tensor), "return": tuple[(Tensor,) * len(every)]}  # type: ignore[misc]
    return made


@functools.cache
def ops(family: str) -> tuple[opsmith.Op, Callable[..., Any], int]:
    lines = [[each.strip() for each in re.split(r" \| ", line)] for line in CALLS[family].strip().splitlines()]
    made = function(lines)
    return opsmith.rowwise(f"row_language::{family}")(made), made, len(lines)


def arguments(op: opsmith.Op, count: int, width: int, kind: str, dtype: torch.dtype, rows: int = 3) -> list[Tensor]:
    generator = torch.Generator().manual_seed(width)

    def made(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator, dtype=torch.float64)

    found = []
    for _ in range(count):
        x = made(rows, width)
        if kind == "ties":
            x = (x * 1.5).round()
        elif kind == "zeros":
            x = x * 0
        elif kind == "special":
            chosen = torch.randint(0, 24, x.shape, generator=generator)
            x = torch.where(chosen < 8, torch.tensor(SPECIAL, dtype=torch.float64)[chosen % 8], x)
            x[0], x[1, 0] = -math.inf, math.inf
        elif kind == "strided":
            x = made(width, 2 * rows)[:, ::2].t()
        found.append(x.to(dtype) if kind != "strided" else made(width, 2 * rows).to(dtype)[:, ::2].t())
    rest = {
        "row": made(width).to(dtype),
        "column": made(rows).to(dtype),
        "index": torch.randint(0, max(width, 1), (rows,), generator=generator),
        "mask": torch.rand((rows, width), generator=generator) > 0.7,
    }
    names = [argument.name for argument in op.signature.arguments[count:]]
    return [*found, *(rest[name] for name in names)]


def derivatives(
    function: Callable[..., Any], given: Sequence[Tensor], of: torch.dtype, further: bool = False
) -> list[Tensor]:
    """The results, their gradients and second gradients; random gradients as they round to `of`. `further`: such that
    they can be differentiated again, so that torch's operators compute the second ones."""
    generator = torch.Generator().manual_seed(3)

    def random(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(of).to(like.dtype)

    leaves = [tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in given]
    results = function(*leaves)
    floating = [leaf for leaf in leaves if leaf.requires_grad]
    outputs = [result for result in results if result.requires_grad]
    grads = [random(result).requires_grad_() for result in outputs]
    first = torch.autograd.grad(outputs, floating, grads, create_graph=True, allow_unused=True, materialize_grads=True)
    second = torch.autograd.grad(
        first, [*floating, *grads], [random(grad) for grad in first], create_graph=further, allow_unused=True,
        materialize_grads=True,
    )  # fmt: skip
    return [tensor.detach() for tensor in (*results, *first, *second)]


def assert_like_torch(ours: Sequence[Tensor], theirs: Sequence[Tensor], exact: Sequence[Tensor], what: str) -> None:
    """No further from the truth than eight times torch's error, or some ulp of the largest number; NaN and infinities
    where torch has them, or the truth."""
    largest = max(
        (float(e.double().abs().nan_to_num(0, 0, 0).max()) for e in exact if e.numel()), default=0.0
    )  # of gradients too, whose terms cancel
    for number, (mine, torchs, right) in enumerate(zip(ours, theirs, exact, strict=True)):
        where = f"{what}, tensor {number}"
        assert mine.shape == torchs.shape == right.shape, where
        if not mine.is_floating_point():
            assert torch.equal(mine, torchs), where
            continue
        eps = torch.finfo(mine.dtype).eps
        mine, torchs, right = mine.double(), torchs.double(), right.double()
        finite = right.isfinite() & torchs.isfinite()
        same = (mine == torchs) | (mine.isnan() & torchs.isnan()) | (mine == right) | (mine.isnan() & right.isnan())
        assert bool((finite | same).all()), f"{where}: {mine[~(finite | same)]} is {torchs[~(finite | same)]} in torch"
        if finite.any():
            error, allowed = (mine - right)[finite].abs(), 8 * (torchs - right)[finite].abs().max()
            assert bool((error <= allowed + 64 * eps * largest).all()), f"{where}: {error.max()}, {allowed} is allowed"


def check(family: str, dtype: torch.dtype, width: int, kind: str, rows: int = 3, further: bool = False) -> None:
    op, reference, count = ops(family)
    given = arguments(op, count, width, kind, dtype, rows)
    single = [t.float() if t.dtype is torch.bfloat16 else t for t in given]  # half types compute in float32
    double = [t.double() if t.is_floating_point() else t for t in given]
    ours = derivatives(op, given, dtype, further)
    theirs = [
        t.to(o.dtype) if t.is_floating_point() else t
        for t, o in zip(derivatives(reference, single, dtype), ours, strict=True)
    ]
    assert_like_torch(ours, theirs, derivatives(reference, double, dtype), f"{family}, {kind}, {width} columns")


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("family", CALLS)
def test_values_and_two_gradients_are_torchs(family: str) -> None:
    for width, kind in ((7, "random"), (33, "ties"), (300, "random"), (1, "random"), (7, "zeros"), (40, "special")):
        check(family, torch.float32, width, kind)
    check(family, torch.float32, 8, "random", rows=0)
    check(family, torch.float32, 9, "random", further=True)


@pytest.mark.parametrize("family", ["norms", "places"])
def test_half_types_compute_in_float32_and_round_once(family: str) -> None:
    for width, kind in ((7, "random"), (300, "random"), (40, "special")):
        check(family, torch.bfloat16, width, kind)


def same(ours: Any, theirs: Any) -> None:
    torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=1e-5, atol=1e-5)


def check_gradients(op: opsmith.Op, *arguments: Any) -> None:
    """The op's results and gradients are those of its reference."""
    found = []
    for each in (op, op.reference):
        given = [a.detach().requires_grad_(a.is_floating_point()) if isinstance(a, Tensor) else a for a in arguments]
        results = each(*given)
        results = results if isinstance(results, tuple) else (results,)
        found.append([*results])
        outputs = [result for result in results if result.requires_grad]
        if outputs:
            leaves = [a for a in given if isinstance(a, Tensor) and a.requires_grad]
            grads = [torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape) for y in outputs]
            found[-1] += torch.autograd.grad(outputs, leaves, grads, allow_unused=True, materialize_grads=True)
    for mine, torchs in zip(*found, strict=True):
        assert mine.dtype == torchs.dtype and mine.shape == torchs.shape
        same(mine.detach(), torchs.detach())


@opsmith.rowwise("row_language::scaled_softmax")
def scaled_softmax(x: Tensor, scale: Tensor, bias: Tensor, power: float = 1.0) -> tuple[Tensor, Tensor]:
    y = torch.softmax(x * scale + bias, -1)
    return y, (y**power).sum(-1)


@pytest.mark.parametrize(
    "shapes",
    [
        [(4, 6), (6,), (4, 1)],
        [(4, 6), (1,), (6,)],
        [(2, 4, 6), (), (4, 1)],
        [(2, 4, 6), (4, 6), (2, 1, 6)],
        [(1, 6), (1, 6), (3, 6)],
        [(6,), (6,), (3, 2, 6)],
        [(4, 1), (1,), (4, 6)],
    ],
    ids=str,
)
def test_tensors_broadcast_as_in_torch(shapes: list[tuple[int, ...]]) -> None:
    check_gradients(scaled_softmax, *[torch.randn(shape) for shape in shapes], 2.0)


def test_any_strides_are_read_in_place() -> None:
    scale, bias = torch.randn(5), torch.randn(5)
    for x in (
        torch.randn(6, 10)[::2, ::2],
        torch.randn(5, 3).t(),
        torch.randn(5, 3, 4).permute(2, 1, 0),
        torch.randn(1, 5).expand(3, 5),
        torch.randn(4, 3, 7)[1:, :, 1:6],
        torch.randn(3, 1).expand(3, 5),
    ):
        check_gradients(scaled_softmax, x, scale, bias, 1.5)


DIMENSIONS = [(-2,), (-3, -2, -1), (-4, -1), (-5,), (1,), (0, 1, 2, 3, 4)]


@pytest.mark.parametrize("dim", DIMENSIONS, ids=str)
def test_any_set_of_dimensions_is_a_row(dim: tuple[int, ...], fresh: Callable[[str], str]) -> None:
    def normal(x: Tensor, weight: Tensor) -> Tensor:
        centred = (x - x.mean(dim, keepdim=True)) * weight
        return centred / (centred.var(dim, keepdim=True, correction=0) + 1e-3).sqrt()

    op = opsmith.rowwise(fresh("normal"))(normal)
    x = torch.randn(2, 3, 4, 3, 5)
    check_gradients(op, x, torch.randn(3, 4, 1, 1))
    check_gradients(op, x.permute(0, 1, 4, 2, 3).contiguous().permute(0, 1, 3, 4, 2), torch.randn(3, 4, 1, 1))


def test_a_dimension_counted_from_the_first_depends_on_how_many_there_are(fresh: Callable[[str], str]) -> None:
    @opsmith.rowwise(fresh("second"))
    def second(x: Tensor) -> Tensor:
        return x.softmax(1)

    for _ in range(2):  # the second time the C++ runtime finds the kernels
        for shape in ((3, 4), (3, 4, 5), (2, 4, 3, 5), (2, 3)):
            x = torch.randn(shape)
            same(second(x), x.softmax(1))
    x = torch.randn(2, 3, 4, 5)
    same(torch.vmap(second)(x), x.softmax(2))
    same(torch.vmap(torch.vmap(second), -1)(x), torch.vmap(torch.vmap(second.reference), -1)(x))


@pytest.mark.parametrize("shape", ["x.shape", "x.shape[1:]", "x.shape[1:3]", "x.shape[:]", "x.shape[-2:]"])
def test_so_does_a_part_of_the_shape(shape: str, fresh: Callable[[str], str]) -> None:
    scope: dict[str, Any] = {"F": F}
    exec(f"def normal(x):\n    return F.layer_norm(x, {shape})", scope)
    scope["normal"].__annotations__ = {"x": Tensor, "return": Tensor}
    op = opsmith.rowwise(fresh("normal"))(scope["normal"])
    x = torch.randn(2, 4, 3, 5)
    check_gradients(op, x[0])
    if shape != "x.shape[1:3]":  # of three dimensions
        check_gradients(op, x)
    for dim in (0, -1):
        batched = x.movedim(0, dim)
        same(torch.vmap(op, dim)(batched), torch.vmap(op.reference, dim)(batched))


def test_results_may_have_several_dtypes_and_shapes(fresh: Callable[[str], str]) -> None:
    @opsmith.rowwise(fresh("quantize"))
    def quantize(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        scale = x.abs().amax(-1, keepdim=True) / 127
        rows = torch.round(x / scale).clamp(-127, 127).to(torch.int8)
        return rows, scale[..., 0], x.argmax(-1), (x > scale).any(-1, keepdim=True)

    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(6, 50).to(dtype)
        found, expected = quantize(x), quantize.reference(x.float())
        assert [each.dtype for each in found] == [torch.int8, dtype, torch.int64, torch.bool]
        assert torch.equal(found[0], expected[0]) and torch.equal(found[2], expected[2])
        assert torch.equal(found[1], expected[1].to(dtype)) and torch.equal(found[3], expected[3])


def test_an_index_is_of_the_first_extreme_and_of_a_nan(fresh: Callable[[str], str]) -> None:
    @opsmith.rowwise(fresh("places"))
    def places(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        return (x.argmax(-1), x.argmin(-1, keepdim=True), torch.argmax(x, dim=-1), x.max(-1).indices, x.min(-1)[1])

    rows = [[1, 3, 3, 0, 0], [2, 2, 2, 2, 2], [0, math.nan, 5, math.nan, 1], [-math.inf, -0.0, 0.0, math.inf, 1]]
    for x in (torch.tensor(rows), torch.tensor(rows[:2], dtype=torch.int32), torch.randn(3, 1000).round()):
        assert all(torch.equal(mine, torchs) for mine, torchs in zip(places(x), places.reference(x), strict=True))


def test_ties_share_a_gradient_in_amax_and_one_gets_it_in_max(fresh: Callable[[str], str]) -> None:
    @opsmith.rowwise(fresh("extremes"))
    def extremes(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x.amax(-1), y.max(-1).values, x <= y

    x = torch.tensor([[1.0, 3, 3, 0], [2, 2, 2, 2]])
    check_gradients(extremes, x, x)
    x, y = x.clone().requires_grad_(), x.clone().requires_grad_()
    first, second, _ = extremes(x, y)
    (first + second).sum().backward()
    assert x.grad.tolist() == [[0, 0.5, 0.5, 0], [0.25] * 4] and y.grad.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]


@opsmith.rowwise("row_language::negative_log_likelihood")
def negative_log_likelihood(logits: Tensor, target: Tensor, smoothing: float = 0.0) -> Tensor:
    lse = logits.logsumexp(-1)
    chosen = logits.gather(-1, target[..., None])[..., 0]
    return (1 - smoothing) * (lse - chosen) + smoothing * (lse - logits.mean(-1))


def test_an_index_out_of_range_is_torchs_error() -> None:
    logits = torch.randn(3, 5)
    same(negative_log_likelihood(logits, torch.tensor([0, 4, 2])), negative_log_likelihood.reference(
        logits, torch.tensor([0, 4, 2])
    ))  # fmt: skip
    for index in (5, -1, 2**40):
        with pytest.raises(RuntimeError, match="out of bounds"):
            negative_log_likelihood(logits, torch.tensor([0, index, 2]))
    assert negative_log_likelihood(torch.randn(0, 5), torch.zeros(0, dtype=torch.int64)).shape == (0,)


def test_rows_without_elements_are_as_in_torch(fresh: Callable[[str], str]) -> None:
    @opsmith.rowwise(fresh("sums"))
    def sums(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return x.sum(-1), x.logsumexp(-1), (x > 0).all(-1), x * x.sum(-1, keepdim=True)

    @opsmith.rowwise(fresh("largest"))
    def largest(x: Tensor) -> Tensor:
        return x.amax(-1)

    check_gradients(sums, torch.randn(3, 0))
    check_gradients(sums, torch.randn(0, 3))
    with pytest.raises((RuntimeError, IndexError), match=r"dimension|identity|non-zero"):
        largest(torch.randn(3, 0))


def test_numbers_and_choices_are_arguments(fresh: Callable[[str], str]) -> None:
    @opsmith.rowwise(fresh("norm"))
    def norm(x: Tensor, weight: Tensor | None, eps: float, centre: bool = True, kind: str = "root") -> Tensor:
        centred = x - x.mean(-1, keepdim=True) if centre else x
        square = centred.square().mean(-1, keepdim=True)
        scale = torch.rsqrt(square + eps) if kind == "root" else 1 / (square + eps * 2)
        return centred * scale if weight is None else centred * scale * weight

    x, weight = torch.randn(3, 8), torch.randn(8)
    for given in ((weight, 0.5), (None, 0.25, False), (weight, 1.5, True, "square")):
        check_gradients(norm, x, *given)


def test_transforms_see_an_op_as_any_other() -> None:
    logits, target = torch.randn(4, 3, 5), torch.randint(0, 5, (4, 3))
    op, reference = negative_log_likelihood, negative_log_likelihood.reference
    same(torch.vmap(op)(logits, target), reference(logits, target))
    same(torch.vmap(op, in_dims=(1, 1))(logits, target), reference(logits, target).t())
    same(torch.vmap(op, in_dims=(0, None))(logits, target[0]), torch.vmap(reference, (0, None))(logits, target[0]))

    def gradient(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return torch.func.grad(lambda x, y: function(x, y, 0.1).square().sum())

    same(gradient(op)(logits, target), gradient(reference)(logits, target))
    same(torch.vmap(gradient(op))(logits, target), torch.vmap(gradient(reference))(logits, target))
    x, y = logits[0], target[0]
    same(
        torch.func.hessian(lambda v: op(v, y).square().sum())(x),
        torch.func.hessian(lambda v: reference(v, y).square().sum())(x),
    )
    tangent = torch.randn_like(x)
    same(
        torch.func.jvp(lambda v: op(v, y), (x,), (tangent,)),
        torch.func.jvp(lambda v: reference(v, y), (x,), (tangent,)),
    )
    torch.autograd.gradcheck(lambda v: op(v, y, 0.2), (x.double().requires_grad_(),))
    torch.autograd.gradgradcheck(lambda v: op(v, y, 0.2), (x.double().requires_grad_(),))


def test_the_compiler_and_fake_tensors_see_shapes_and_dtypes() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    x, scale, bias = torch.randn(3, 4, 6), torch.randn(6), torch.randn(4, 1)
    turned = x.transpose(0, 1), scale, bias[:3]
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(each) for each in turned]
        y, sums = scaled_softmax(*fakes)
    real, real_sums = scaled_softmax(*turned)
    assert (y.shape, y.stride(), sums.stride()) == (real.shape, real.stride(), real_sums.stride())

    def step(x: Tensor, scale: Tensor, power: float) -> Tensor:
        y, total = scaled_softmax(x * 2, scale, bias, power)
        return (y * total[..., None]).sum()

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager", dynamic=True)
    for power, rows in ((2.0, 3), (3.0, 5)):
        x, scale = torch.randn(rows, 4, 6, requires_grad=True), torch.randn(6, requires_grad=True)
        same(
            torch.autograd.grad(compiled(x, scale, power), (x, scale)),
            torch.autograd.grad(step(x, scale, power), (x, scale)),
        )


def test_out_is_written_even_if_it_is_the_input() -> None:
    x, target = torch.randn(3, 5), torch.tensor([1, 0, 4])
    out = torch.empty(3)
    assert negative_log_likelihood(x, target, out=out) is out
    same(out, negative_log_likelihood.reference(x, target))

    y, total = torch.empty(5, 3).t(), torch.empty(6)[::2]
    one = torch.ones(5)
    scaled_softmax(x, one, one, out=(y, total))
    same((y, total), scaled_softmax.reference(x, one, one))
    expected = scaled_softmax.reference(x, one, one)
    scaled_softmax(x, one, one, out=(x, total))
    same((x, total), expected)


def test_autocast_leaves_dtypes_as_they_are() -> None:
    x, target = torch.randn(3, 5), torch.tensor([1, 0, 4])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert negative_log_likelihood(x, target).dtype == torch.float32


HELD = torch.ones(3)


def _scan(x: Tensor) -> Tensor:
    return x.cumsum(-1)


def _product(x: Tensor) -> Tensor:
    return x.prod(-1)


def _sorted(x: Tensor) -> Tensor:
    return x.sort(-1).values


def _reshaped(x: Tensor) -> Tensor:
    return x.reshape(2, -1).sum(-1)


def _elements(x: Tensor) -> Tensor:
    return x[..., 1:] - x.sum(-1, keepdim=True)


def _first(x: Tensor) -> Tensor:
    return x[..., 0] * x.sum(-1)


def _two_kinds(x: Tensor) -> Tensor:
    rows = x - x.mean(-1, keepdim=True)
    return rows / rows.std(-2, keepdim=True)


def _twice(x: Tensor) -> Tensor:
    return x.sum(-1, keepdim=True).mean(-1)


def _branch(x: Tensor) -> Tensor:
    return x.sum(-1) if x.amax() > 0 else x.mean(-1)


def _none(x: Tensor) -> Tensor:
    return torch.relu(x)


def _several(x: Tensor, index: Tensor) -> Tensor:
    return x.gather(-1, index).sum(-1)


def _order(x: Tensor) -> Tensor:
    return x.norm(3, dim=-1)


def _held(x: Tensor) -> Tensor:
    return x.softmax(-1) * HELD


def _average(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x, target)


def _counted(x: Tensor) -> Tensor:
    return x.sum(-1) * torch.arange(4, device=x.device)


REFUSED = {
    _scan: "Tensor.cumsum", _product: "Tensor.prod", _sorted: "Tensor.sort", _reshaped: "Tensor.reshape",
    _elements: "selects elements", _first: "not always have size one", _two_kinds: "dimension -1 first and -2 later",
    _twice: "reduced before", _branch: "branches on a value", _none: "pointwise", _several: "one index per row",
    _order: "norm of order 3", _held: "not one of its arguments",
    _average: 'reduction="none"', _counted: "x.shape[-1]",
}  # fmt: skip


@pytest.mark.parametrize("function", REFUSED, ids=lambda each: each.__name__)
def test_a_refusal_names_the_line_and_the_reason(function: Callable[..., Any], fresh: Callable[[str], str]) -> None:
    with pytest.raises(NotRowwiseError) as caught:
        opsmith.rowwise(fresh("refused"))(function)
    message = str(caught.value)
    assert REFUSED[function] in message and "opsmith.op" in message
    assert re.search(r"\n  test_rowwise_language.py:\d+: ", message), message
