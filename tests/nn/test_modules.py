"""Modules behave as torch's own: what they compute, save, copy, cast and compile to."""

from __future__ import annotations

import copy
import functools
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import opsmith

FEATURES = 6

# A module, and the same in torch's own operators on its parameters.
MODULES: dict[str, tuple[Callable[[], nn.Module], Callable[..., Tensor]]] = {
    "AddTwo": (opsmith.nn.AddTwo, lambda m, x: x + 2),
    "Square": (opsmith.nn.Square, lambda m, x: x * x),
    "Mish": (opsmith.nn.Mish, lambda m, x: functional.mish(x)),
    "Swish": (lambda: opsmith.nn.Swish(1.5), lambda m, x: x * torch.sigmoid(1.5 * x)),
    "Polynomial": (
        lambda: opsmith.nn.Polynomial(0.1, 0.2, 0.3, 0.4),
        lambda m, x: m.a * x**3 + m.b * x**2 + m.c * x + m.d,
    ),
    "ScaleBiasReLU": (
        lambda: opsmith.nn.ScaleBiasReLU(FEATURES, 0.5),
        lambda m, x: torch.relu(x * 0.5 + m.bias),
    ),
    "FusedLinear": (
        lambda: opsmith.nn.FusedLinear(FEATURES, 4, 0.5),
        lambda m, x: torch.relu(x @ m.weight.t() * 0.5 + m.bias),
    ),
    "SwiGLU": (
        lambda: opsmith.nn.SwiGLU(FEATURES, 16),
        lambda m, x: m.down_proj(functional.silu(m.gate_proj(x)) * m.up_proj(x)),
    ),
    "ConvRNN": (
        lambda: opsmith.nn.ConvRNN(5, "relu"),
        lambda m, x: opsmith.ops.convrnn.reference(x, m.kernel, torch.zeros_like(x[:, 0]), "relu"),
    ),
    "Softmax": (lambda: opsmith.nn.Softmax(1), lambda m, x: torch.softmax(x, 1)),
    "LogSoftmax": (lambda: opsmith.nn.LogSoftmax(-1), lambda m, x: torch.log_softmax(x, -1)),
    "LayerNorm": (
        lambda: filled(opsmith.nn.LayerNorm((3, FEATURES), 1e-3)),
        lambda m, x: functional.layer_norm(x, (3, FEATURES), m.weight, m.bias, 1e-3),
    ),
    "RMSNorm": (
        lambda: filled(opsmith.nn.RMSNorm(FEATURES)),
        lambda m, x: functional.rms_norm(x, (FEATURES,), m.weight),
    ),
    "AddRMSNorm": (lambda: filled(opsmith.nn.AddRMSNorm(FEATURES, 1e-3)), lambda m, x, r: added(x + r, m.weight)),
    "GroupNorm": (
        lambda: filled(opsmith.nn.GroupNorm(3, 3, 1e-3)),
        lambda m, x: functional.group_norm(x, 3, m.weight, m.bias, 1e-3),
    ),
    "GroupNormSiLU": (
        lambda: filled(opsmith.nn.GroupNormSiLU(1, 3)),
        lambda m, x: functional.silu(functional.group_norm(x, 1, m.weight, m.bias)),
    ),
    "CrossEntropyLoss": (
        lambda: opsmith.nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1),
        lambda m, x, target: functional.cross_entropy(x, target, ignore_index=0, label_smoothing=0.1),
    ),
}
BESIDES: dict[str, Callable[[Tensor], Tensor]] = {
    "AddRMSNorm": lambda x: torch.ones_like(x).cumsum(-1),
    "CrossEntropyLoss": lambda x: (x[:, 0] > 0).long() + (x[:, 1] > 0),
}
"""What these modules take besides x."""


def filled(module: nn.Module) -> nn.Module:
    """With parameters that are not ones and zeros."""
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            parameter.copy_(torch.linspace(-1, 1 + number, parameter.numel()).view(parameter.shape))
    return module


def added(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return functional.rms_norm(hidden, hidden.shape[-1:], weight, 1e-3), hidden


def call(name: str, module: Callable[..., Any], x: Tensor) -> Tensor:
    """What a module returns, several results as one tensor."""
    returned = module(x, BESIDES[name](x)) if name in BESIDES else module(x)
    return torch.cat(returned) if isinstance(returned, tuple) else returned


def outcome(name: str, module: nn.Module, function: Callable[..., Any], x: Tensor) -> list[Tensor]:
    """The result, and the gradients of the input and of every parameter."""
    leaves = [x.detach().requires_grad_(), *module.parameters()]
    y = call(name, function, leaves[0])
    return [y, *torch.autograd.grad(y, leaves, torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape))]


def test_every_module_is_tested_here() -> None:
    assert set(MODULES) == set(opsmith.nn.__all__) <= set(dir(opsmith.nn))
    assert not hasattr(opsmith.nn, "NoSuchModule")


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_computes_what_it_says(name: str, dtype: torch.dtype) -> None:
    make, same = MODULES[name]
    module = make().to(dtype)
    x = torch.randn(5, 3, FEATURES, dtype=dtype)
    expected = outcome(name, module, functools.partial(same, module), x)
    torch.testing.assert_close(outcome(name, module, module, x), expected)


@pytest.mark.parametrize("name", MODULES)
def test_it_is_saved_copied_and_cast_as_any_module(name: str) -> None:
    make, _ = MODULES[name]
    module, x = make(), torch.randn(5, 3, FEATURES)
    y = call(name, module, x)
    other = make()
    other.load_state_dict(module.state_dict())
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    for copied in (
        other,
        copy.deepcopy(module),
        pickle.loads(pickle.dumps(module)),
        torch.load(file, weights_only=False),
    ):
        assert torch.equal(call(name, copied, x), y)
        assert repr(copied) == repr(module)
    for dtype in (torch.float64, torch.bfloat16):
        assert call(name, copy.deepcopy(module).to(dtype), x.to(dtype)).dtype == dtype
    assert call(name, copy.deepcopy(module).to("meta"), x.to("meta")).shape == y.shape


@pytest.mark.parametrize("name", MODULES)
def test_it_compiles_to_one_graph(name: str) -> None:
    module, x = MODULES[name][0](), torch.randn(5, 3, FEATURES)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(outcome(name, module, compiled, x), outcome(name, module, module, x))


def test_fused_linear_begins_as_a_linear_and_takes_its_weights() -> None:
    torch.manual_seed(1)
    linear = nn.Linear(50, 20)
    torch.manual_seed(1)
    fused = opsmith.nn.FusedLinear(50, 20)
    assert torch.equal(fused.weight, linear.weight) and torch.equal(fused.bias, linear.bias)
    fused.load_state_dict(nn.Linear(50, 20).state_dict())


@pytest.mark.parametrize("name", ["FusedLinear", "SwiGLU"])
def test_a_layer_with_a_matrix_has_the_dtype_of_the_autocast_region(name: str) -> None:
    module, x = MODULES[name][0](), torch.randn(5, 3, FEATURES)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = module(x)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in module.parameters())


def test_parameters_are_made_where_and_as_asked() -> None:
    made: list[Callable[..., nn.Module]] = [
        opsmith.nn.Polynomial,
        functools.partial(opsmith.nn.ScaleBiasReLU, 3),
        functools.partial(opsmith.nn.FusedLinear, 3, 4),
        functools.partial(opsmith.nn.SwiGLU, 3, 4),
        opsmith.nn.ConvRNN,
    ]
    for make in made:
        for parameter in make(device="meta", dtype=torch.float16).parameters():
            assert (parameter.device.type, parameter.dtype) == ("meta", torch.float16)


def test_their_text_tells_how_they_were_made() -> None:
    assert repr(opsmith.nn.Swish(1.5)) == "Swish(beta=1.5)"
    assert repr(opsmith.nn.ScaleBiasReLU(6, 0.5)) == "ScaleBiasReLU(features=6, scale=0.5)"
    assert repr(opsmith.nn.FusedLinear(6, 4)) == "FusedLinear(in_features=6, out_features=4, scale=1.0)"
    assert repr(opsmith.nn.ConvRNN(5, "relu")) == "ConvRNN(kernel_size=5, activation='relu')"
    assert repr(opsmith.nn.Polynomial()) == "Polynomial(initially 0.0*x^3 + 0.25*x^2 + 0.5*x + 0.0)"


PAIRS: list[tuple[nn.Module, nn.Module]] = [
    (opsmith.nn.Softmax(), nn.Softmax()),
    (opsmith.nn.LogSoftmax(0), nn.LogSoftmax(0)),
    (opsmith.nn.LayerNorm(FEATURES), nn.LayerNorm(FEATURES)),
    (opsmith.nn.LayerNorm((3, FEATURES), 1e-2, False), nn.LayerNorm((3, FEATURES), 1e-2, False)),
    (opsmith.nn.LayerNorm(FEATURES, bias=False), nn.LayerNorm(FEATURES, bias=False)),
    (opsmith.nn.RMSNorm((3, FEATURES)), nn.RMSNorm((3, FEATURES))),
    (opsmith.nn.RMSNorm(FEATURES, 1e-2, False), nn.RMSNorm(FEATURES, 1e-2, False)),
    (opsmith.nn.GroupNorm(3, 3), nn.GroupNorm(3, 3)),
    (opsmith.nn.GroupNorm(1, 3, affine=False), nn.GroupNorm(1, 3, affine=False)),
]


@pytest.mark.filterwarnings("ignore:Implicit dimension")
@pytest.mark.parametrize(("ours", "torchs"), PAIRS, ids=str)
def test_torchs_module_and_ours_take_each_others_place(ours: nn.Module, torchs: nn.Module) -> None:
    assert repr(ours) == repr(torchs)
    torchs.load_state_dict(filled(ours).state_dict())
    for x in (torch.randn(4, 3, FEATURES), torch.randn(4, 3, FEATURES).transpose(0, 1)[:3].transpose(0, 1)):
        torch.testing.assert_close(ours(x), torchs(x))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_averages_as_torchs_does(reduction: str) -> None:
    ours = opsmith.nn.CrossEntropyLoss(reduction=reduction, label_smoothing=0.2, ignore_index=2)
    torchs = nn.CrossEntropyLoss(reduction=reduction, label_smoothing=0.2, ignore_index=2)
    for shape, classes in (((7, 5), 5), ((2, 5, 3), 5), ((2, 5, 3, 4), 5), ((5,), 5)):
        target = torch.randint(0, classes, (*shape[:1], *shape[2:]) if len(shape) > 1 else ())
        x = torch.randn(shape)
        torch.testing.assert_close(ours(x, target), torchs(x, target), equal_nan=True)
    with pytest.raises(TypeError, match="probability"):
        ours(x, torch.rand(5))
    with pytest.raises(ValueError, match="'avg'"):
        opsmith.nn.CrossEntropyLoss(reduction="avg")


def test_a_norm_names_the_shape_that_it_takes() -> None:
    with pytest.raises(ValueError, match=r"\(2, 5\); it takes \[..., 3, 6\]"):
        opsmith.nn.LayerNorm((3, 6))(torch.randn(2, 5))
    with pytest.raises(ValueError, match=r"takes \[batch, 6, ...\]"):
        opsmith.nn.GroupNorm(3, 6)(torch.randn(2, 5))
