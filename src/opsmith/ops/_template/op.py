"""_template: an op that does nothing, to be copied. This file explains how an op is wired.

A shipped op is a folder in opsmith/ops:

    ops/<name>/op.py        the reference, what it is tried on, what it costs; kernels where it has any of its own
    ops/<name>/README.md    the signature with shapes, the PyTorch line it equals, its gradient
    ops/<name>/__init__.py  one line, so that `opsmith.ops.<name>` is the op

To add one: copy this folder, name it, write those parts. There is no list to add it to. `opsmith list`, the demo and
tests/test_every_op.py find the folder, and the tests then hold the op to all that is said below.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

from .._elementwise import least, tensors

# 1. The reference: plain PyTorch, readable, differentiable. It is the op's specification. Its annotations are the
#    dispatcher's schema (Tensor, int, float, bool, str; `Tensor | None`; a tuple of Tensors as the result), its
#    docstring opens with the equation and the shapes.
#
#    @opsmith.pointwise is for functions in which each element of the result comes from the elements in the same place
#    of the inputs. Their kernels are generated: one for CUDA and one in C++, forward, backward and second backward.
#    @opsmith.op takes any other function; there the reference runs until a kernel is written.
#
#    This one returns its input. Results never alias inputs, so what a caller gets is a copy.


@opsmith.pointwise("opsmith::_template")
def _template(x: Tensor) -> Tensor:
    """y = x, for x [...] and y [...]: x.clone()."""
    return x


# 2. Kernels of your own. A pointwise op needs none. Where you know better than the generator, or the op is not
#    pointwise, write them here, on the op's own arguments; "cuda" in the place of "cpu" for the other device:
#
#        @_template.register_kernel("cpu")
#        def _(x): ...                         # returns the result; NotImplemented: let the reference run
#
#        @_template.register_backward("cpu")
#        def _(grads, x, *, needs): ...        # names what it needs, and only that is saved
#
#    A kernel is an acceleration of the reference, never a second meaning: the same result for every input. A kernel
#    with a name (register_kernel("cuda", name="second")) waits for `with op.using("second"):`.

# 3. Samples: what check, bench, the demo and the tests call the op on. `tensors` gives the sizes and layouts at which
#    an elementwise kernel can go wrong; add the calls that only this op has (a broadcast, an option). The first sample
#    is the usual call: `opsmith show --source` prints the kernel for it. Keep them small, but for the one to time.


@_template.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    for name, x in tensors(device, dtype):
        yield opsmith.Sample(args=(x,), name=name)


# 4. Cost: the least that a forward call must move and compute, by which bench tells how near to the machine's limit the
#    op comes. Takes the op's arguments.


@_template.register_cost
def cost(x: Tensor) -> opsmith.Cost:
    return least(x, flops=0)


# 5. All else is derived, and `opsmith show opsmith::_template` tells it part by part: the gradient and that of the
#    gradient, forward mode, the fake for torch.compile and torch.export, vmap, autocast, out=. Each can be replaced by
#    the register_* method of that name (register_fake, register_vmap, ...).
