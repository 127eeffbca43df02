"""Modules behave as torch's own: what they compute, save, copy, cast and compile to."""

from __future__ import annotations

import copy
import functools
import io
import pickle
from collections.abc import Callable

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
}


def outcome(module: nn.Module, function: Callable[..., Tensor], x: Tensor) -> list[Tensor]:
    """The result, and the gradients of the input and of every parameter."""
    leaves = [x.detach().requires_grad_(), *module.parameters()]
    y = function(leaves[0])
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
    torch.testing.assert_close(outcome(module, module, x), outcome(module, lambda v: same(module, v), x))


@pytest.mark.parametrize("name", MODULES)
def test_it_is_saved_copied_and_cast_as_any_module(name: str) -> None:
    make, _ = MODULES[name]
    module, x = make(), torch.randn(5, 3, FEATURES)
    y = module(x)
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
        assert torch.equal(copied(x), y)
        assert repr(copied) == repr(module)
    assert copy.deepcopy(module).double()(x.double()).dtype == torch.float64
    assert copy.deepcopy(module).to(torch.bfloat16)(x.bfloat16()).dtype == torch.bfloat16
    assert copy.deepcopy(module).to("meta")(x.to("meta")).shape == y.shape


@pytest.mark.parametrize("name", MODULES)
def test_it_compiles_to_one_graph(name: str) -> None:
    module, x = MODULES[name][0](), torch.randn(5, 3, FEATURES)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(outcome(module, compiled, x), outcome(module, module, x))


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
