"""Operator: one name in torch's dispatcher, with every part torch can ask for, each replaceable.

An Op has several: the operator itself, its backward, its out= form; an in-place op also has its functional form. Parts
are registered once and look up what to do when called, so a part written later replaces a derived one without another
registration.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import runtime
from ..errors import NameTakenError, RedeclaredError
from ..kernels import Kernel
from ..reference.forms import Reference
from ..reference.signature import Signature, split_name
from ..reference.tensors import DTYPE_CLASSES, on_meta
from ..reference.vjp import autograd_restored
from . import batching, execution, shipped
from .gradients import WrittenGradient


class Operator:
    """A reference under a name, known to the dispatcher."""

    def __init__(
        self,
        name: str,
        reference: Reference,
        *,
        backward: Operator | None = None,
        refusal: Callable[[str], Exception] | None = None,
        inert: frozenset[str] = frozenset(),
    ) -> None:
        """`refusal` makes the error to raise where a gradient would be recorded. `inert` names arguments that are not
        variables of the derivative: results that a backward takes to avoid recomputing them."""
        self.name = name
        self.reference = reference
        self.signature: Signature = reference.signature
        self.backward = backward
        self.refusal = refusal
        self.inert = inert
        self.kernels: dict[str, Kernel] = {}
        self.autocast: dict[str, str | torch.dtype] = {}
        self.written_fake: Callable[..., Any] | None = None
        self.written_vmap: Callable[..., Any] | None = None
        # Tried before the general rule, (operator, arguments, in_dims) -> results or NotImplemented.
        self.derived_vmap: Callable[[Operator, Sequence[Any], Sequence[Any]], Any] | None = None
        self.written_gradient: WrittenGradient | None = None
        self.closed = False
        self.keeps_every_input = True
        # Whether derivatives of every order can be computed from what is saved. Then an input that is not saved is not
        # a variable of the backward operator.
        self.saves_suffice = False

        namespace, self.base = split_name(name)
        schema = self.signature.schema(name)
        adopted = exists(name) and shipped.adopt(name, schema)
        if exists(name) and not adopted:
            raise NameTakenError(name, "another library")
        self.library = torch.library.Library(namespace, "FRAGMENT")
        if not adopted:
            self.library.define(self.signature.schema(self.base), tags=torch.Tag.pt2_compliant_tag)
        shipped.declared(name, schema)
        self.overload: torch._ops.OpOverload = getattr(getattr(torch.ops, namespace), self.base).default
        self.call: Callable[..., Any] = self.overload._op
        self._register()

    def __repr__(self) -> str:
        return f"<operator {self.name}>"

    def _register(self) -> None:
        bind = self.signature.bind

        def execute(*args: Any, **kwargs: Any) -> Any:
            return execution.execute(self, bind(args, kwargs))

        def fake(*args: Any, **kwargs: Any) -> Any:
            values = bind(args, kwargs)
            if self.written_fake is not None:  # it may not use every tensor
                execution.check_one_device(self.name, self.signature, values)
            return self.fake(*values)

        def batched(*args: Any, **kwargs: Any) -> Any:
            return batching.kernel(self, bind(args, kwargs))

        def batched_grads(*args: Any, **kwargs: Any) -> Any:
            # torch.autograd.grad(is_grads_batched=True) still uses the legacy vmap, which has its own key.
            with autograd_restored():
                return self.reference.composite(*bind(args, kwargs))

        self.library.impl(self.base, execute, "CompositeExplicitAutograd")
        _register_fake(self.library, self.name, fake)
        self.library.impl(self.base, batched, "FuncTorchBatched")
        self.library.impl(self.base, batched_grads, "Batched")
        self.attachment = runtime.attach(self)

    def close(self) -> None:
        """Removes the operator from the dispatcher. A graph or compiled function that still holds it raises from now
        on: torch would follow its handle into memory that now belongs to another operator."""
        self.closed = True
        self.call = self._refuse
        self.overload._op = self._refuse
        self.overload.redispatch = self._refuse  # type: ignore[method-assign]
        self.attachment.close()
        self.library._destroy()
        shipped.closed(self.name)

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise RedeclaredError(self.name)

    # --- forward ----------------------------------------------------------------------------------------------

    def open(self, *args: Any) -> Any:
        """The reference, recorded by torch's own operators; raises if a gradient cannot be recorded."""
        if self.refusal is not None and torch.is_grad_enabled():
            if any(t is not None and t.requires_grad for t in self.signature.flatten(args)):
                raise self.refusal(self.name)
        return self.reference.composite(*args)

    def fake(self, *args: Any) -> Any:
        """On fake tensors: results with the shapes, dtypes, strides and device of the operator's."""
        if self.written_fake is None:
            return self.reference.fake(*args)
        positional, keyword = self.signature.arranged(args)
        return self.written_fake(*positional, **keyword)

    def expected(self, args: Sequence[Any]) -> Any:
        """Tensors like those that the operator must return for these real arguments; meta stands for the call's
        device."""
        if self.written_fake is not None:
            # A fake with data-dependent sizes asks torch.library for a context, which does not exist here.
            with contextlib.suppress(Exception):
                return self.fake(*on_meta(self.signature, args))
        return self.reference.expected(*args)

    def redispatch(self, keyset: torch._C.DispatchKeySet, args: Sequence[Any]) -> Any:
        positional, keyword = self.signature.arranged(args)
        return self.overload.redispatch(keyset, *positional, **keyword)

    def call_arranged(self, args: Sequence[Any]) -> Any:
        positional, keyword = self.signature.arranged(args)
        return self.overload(*positional, **keyword)

    # --- gradient ---------------------------------------------------------------------------------------------

    def backward_replaced(self) -> None:
        """Called when the backward operator has a new kernel: it decides what a call saves."""
        tensors = {argument.name for argument in self.signature.tensors}
        arguments = {argument.name for argument in self.signature.arguments}
        named = [
            self.saved_names(device, label)
            for device in (self.backward.kernels if self.backward else {})
            for label in DTYPE_CLASSES
        ]
        self.keeps_every_input = all(names is None or tensors <= set(names) <= arguments for names in named)
        self.attachment.update()

    def saved_names(self, device: str, dtype_class: str) -> tuple[str, ...] | None:
        """What the backward kernel of a device needs saved of a call with tensors of this dtype class; None if the
        backward needs every input."""
        kernel = self.backward.kernels.get(device) if self.backward is not None else None
        return None if kernel is None else kernel.saves_for(dtype_class)

    def passthrough(self, device: str) -> tuple[int | None, ...] | None:
        """For each tensor the result whose gradient is its own, unchanged: see kernels.Kernel."""
        kernel = self.backward.kernels.get(device) if self.backward is not None else None
        return None if kernel is None else kernel.passthrough

    def call_backward(
        self, grads: list[Any], inputs: Sequence[Any], results: list[Any], needs: list[bool]
    ) -> list[torch.Tensor]:
        self.check_open()
        assert self.backward is not None
        if self.signature.returns_list:
            return self.backward.overload(grads, *inputs, results, needs)  # type: ignore[no-any-return]
        return self.backward.overload(*grads, *inputs, *results, needs)  # type: ignore[no-any-return]

    # --- parts written by the author --------------------------------------------------------------------------

    def check_open(self) -> None:
        if self.closed:
            raise RedeclaredError(self.name)

    def set_kernel(self, kernel: Kernel) -> None:
        self.check_open()
        self.kernels[kernel.device] = kernel
        self.attachment.update()

    def set_backward(self, backward: Operator) -> None:
        self.backward = backward
        self.attachment.update()

    def set_gradient(self, backward: Callable[..., Any], setup_context: Callable[..., Any] | None) -> None:
        """A gradient written with torch operators, as torch.library.register_autograd takes it."""
        self.written_gradient = WrittenGradient(backward, setup_context)
        if self.attachment.tier != "python":  # A gradient in Python is recorded in Python.
            self.attachment.close()
            self.attachment = runtime.fallback.Attachment(self)

    def set_autocast(self, device: str, policy: str | torch.dtype) -> None:
        """`policy`: 'keep', 'lower' (the region's dtype), 'float32', or a dtype."""
        self.autocast[device] = policy
        self.attachment.update()


def _register_fake(library: torch.library.Library, name: str, fake: Callable[..., Any]) -> None:
    """torch.library.register_fake without its search for the caller's source line, 1 ms per operator."""
    try:
        entry = torch._library.simple_registry.singleton.find(name)
        library._registration_handles.append(entry.fake_impl.register(fake, "opsmith", lib=library))
    except (AttributeError, TypeError):  # another version of torch, with other internals
        torch.library.register_fake(name, fake, lib=library)


def exists(name: str) -> bool:
    """Whether the dispatcher knows an operator of that name."""
    return bool(torch._C._jit_get_schemas_for_operator(name))
