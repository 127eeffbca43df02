"""_template: an op that does nothing, to be copied. This file explains how an op is wired.

A shipped op is a folder in opsmith/ops:

    ops/<name>/op.py        the reference, samples, cost; written kernels if it has any
    ops/<name>/README.md    the signature with shapes, the equivalent PyTorch line, its gradient
    ops/<name>/__init__.py  one line, so that `opsmith.ops.<name>` is the op

To add one: copy this folder, rename it, write those parts. There is no list to add it to. `opsmith list`, the demo and
tests/test_every_op.py find the folder, and the tests then check everything below.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._elementwise import least, tensors

# 1. The reference: plain PyTorch, readable, differentiable. It specifies the op. Its annotations become the
#    dispatcher's schema (Tensor, int, float, bool, str; `Tensor | None`; a tuple of Tensors as the result), its
#    docstring opens with the equation and the shapes.
#
#    @opsmith.pointwise is for functions in which each element of the result depends only on the elements at the same
#    position of the inputs. Their kernels are generated: CUDA and C++, forward, backward and second backward.
#    @opsmith.op takes any other function; there the reference runs until a kernel is written.
#
#    This one returns its input. Results never alias inputs, so the caller gets a copy.


@opsmith.pointwise("opsmith::_template")
def _template(x: Tensor) -> Tensor:
    """y = x, for x [...] and y [...]: x.clone()."""
    return x


# 2. Written kernels. A pointwise op needs none. If you know better than the generator, or if the op is not pointwise,
#    write them here, with the op's arguments; use "cuda" instead of "cpu" for the other device:
#
#        @_template.register_kernel("cpu")
#        def _(x): ...                         # returns the result; NotImplemented: the reference runs
#
#        @_template.register_backward("cpu")
#        def _(grads, x, *, needs): ...        # names what it needs, and only that is saved
#
#    A kernel accelerates the reference and gives the same result for every input. A kernel with a name
#    (register_kernel("cuda", name="second")) runs only under `with op.using("second"):`.

# 3. Samples: the calls that check, bench, the demo and the tests run. `tensors` gives the sizes and layouts at which an
#    elementwise kernel can be wrong; add calls that are specific to this op (a broadcast, an option). The first sample
#    is the usual call: `opsmith show --source` prints its kernel. Keep them small, except the one to time.


@_template.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    for name, x in tensors(device, dtype):
        yield opsmith.Sample(args=(x,), name=name)


# 4. Cost: the least bytes and operations of a forward call, from the op's arguments. bench uses it to say how close the
#    op comes to the machine's limit.


@_template.register_cost
def cost(x: Tensor) -> opsmith.Cost:
    return least(x, flops=0)


# 5. Everything else is derived, and `opsmith show opsmith::_template` lists it part by part: the first and second
#    gradient, forward mode, the fake for torch.compile and torch.export, vmap, autocast, out=. Each can be replaced by
#    the register_* method of that name (register_fake, register_vmap, ...).
