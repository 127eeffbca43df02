"""Vjp: the gradient of a reference, by recomputing it and letting torch differentiate it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._functorch.eager_transforms import enable_inplace_requires_grad
from torch.autograd.graph import _engine_run_backward

from ..errors import RandomReferenceError, UnsavedInputError
from .forms import Plain, Reference
from .purity import Audit, RandomState
from .tensors import is_placeholder, settle

_AUTOGRAD_KEYS = (
    torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradFunctionality)
    | torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradOther)
    | torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradNestedTensor)
    | torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
)


class Vjp(Reference):
    """The vector-Jacobian product of another reference: gradients of its results in, the requested gradients out.

    It recomputes the other reference and lets torch differentiate that. So it agrees with torch's own gradient at every
    kink, and only the inputs must be saved."""

    def __init__(self, of: Reference, name: str) -> None:
        self.of = of
        self.name = name
        self.signature = of.signature.backward()
        self._grads = len(of.signature.results)
        self._inputs = slice(self._grads, self._grads + len(of.signature.arguments))

    def split(self, args: Sequence[Any]) -> tuple[list[torch.Tensor | None], Sequence[Any], list[bool]]:
        """The backward operator's arguments as (gradients of the results, the forward's arguments, needs)."""
        grads = list(args[0]) if self.of.signature.returns_list else list(args[: self._grads])
        return grads, args[self._inputs], args[-1]

    def run(self, *args: Any) -> Any:
        grads, inputs, needs = self.split(args)
        with torch.inference_mode(False), autograd_restored(), torch.enable_grad():
            return self._without_random_numbers(inputs, lambda: self._pullback(grads, inputs, needs, False))

    def composite(self, *args: Any) -> Any:
        grads, inputs, needs = self.split(args)
        with torch.enable_grad(), enable_inplace_requires_grad(True):
            return self._without_random_numbers(inputs, lambda: self._pullback(grads, inputs, needs, True))

    def transformed(self, *args: Any) -> Any:
        grads, inputs, needs = self.split(args)
        return self._without_random_numbers(inputs, lambda: self._transformed_pullback(grads, inputs, needs))

    def fake(self, *args: Any) -> Any:
        _, inputs, needs = self.split(args)
        tensors = self.of.signature.flatten(inputs)
        return [
            torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            for tensor, needed in zip(tensors, needs, strict=True)
            if needed and tensor is not None
        ]

    def _pullback(
        self, grads: list[torch.Tensor | None], inputs: Sequence[Any], needs: list[bool], differentiable: bool
    ) -> list[torch.Tensor]:
        tensors = self._available(inputs)
        leaves = [
            None if tensor is None else _leaf(tensor, needed, differentiable)
            for tensor, needed in zip(tensors, needs, strict=True)
        ]
        wanted = [leaf for leaf, needed in zip(leaves, needs, strict=True) if needed and leaf is not None]
        results = self._forward(self.of.signature.unflatten(inputs, leaves), self.of.composite)
        pairs = [(r, g) for r, g in zip(results, grads, strict=True) if g is not None and r.requires_grad]
        if not pairs or not wanted:
            return [torch.zeros_like(leaf, memory_format=torch.contiguous_format) for leaf in wanted]
        # torch.autograd.grad without its shape checks, whose first use imports sympy (0.5 s).
        found = list(_engine_run_backward(
            tuple(result for result, _ in pairs), tuple(grad.to(result.dtype) for result, grad in pairs),
            differentiable, differentiable, tuple(wanted), allow_unreachable=True, accumulate_grad=False,
        ))  # fmt: skip
        del results, pairs  # Free them, and each gradient once it is copied, to keep peak memory low.
        settled = []
        for leaf in wanted:
            grad = found.pop(0)
            settled.append((torch.zeros_like(leaf) if grad is None else grad).contiguous())
            del grad
        if differentiable:
            return settled
        return settle([grad.detach() for grad in settled], [t for t in (*tensors, *grads) if t is not None])

    def _transformed_pullback(
        self, grads: list[torch.Tensor | None], inputs: Sequence[Any], needs: list[bool]
    ) -> list[torch.Tensor]:
        """The same inside a transform: torch.func.vjp opens its own level, which composes with the others."""
        tensors = self._available(inputs)
        chosen = [index for index, needed in enumerate(needs) if needed and tensors[index] is not None]
        defined = [grad for grad in grads if grad is not None]

        def forward(*leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
            filled = list(tensors)
            for index, leaf in zip(chosen, leaves, strict=True):
                filled[index] = leaf
            results = self._forward(self.of.signature.unflatten(inputs, filled), self.of.transformed)
            return tuple(result for result, grad in zip(results, grads, strict=True) if grad is not None)

        wanted: list[torch.Tensor] = [tensors[index] for index in chosen]  # type: ignore[misc]
        if not defined or not wanted:
            return [torch.zeros_like(tensor) for tensor in wanted]
        results, pull = torch.func.vjp(forward, *wanted)[:2]
        found = pull(tuple(grad.to(result.dtype) for grad, result in zip(defined, results, strict=True)))
        return [grad.contiguous() for grad in found]

    def _forward(self, args: Sequence[Any], position: Callable[..., Any]) -> list[torch.Tensor]:
        if isinstance(self.of, Plain):  # The author's function itself: the layout of these results does not matter.
            results = self.of.results(self.of(*args))
            assert results is not None
            return results
        return list(position(*args))

    def _available(self, inputs: Sequence[Any]) -> list[torch.Tensor | None]:
        """The forward's tensors. Raises if the backward kernel saved only the shape of one."""
        named = self.of.signature.named_tensors(inputs)
        if missing := dict.fromkeys(argument.name for argument, tensor in named if is_placeholder(tensor)):
            raise UnsavedInputError(self.name, list(missing))
        return [tensor for _, tensor in named]

    def _without_random_numbers(
        self, inputs: Sequence[Any], pull: Callable[[], list[torch.Tensor]]
    ) -> list[torch.Tensor]:
        """What `pull` returns. Raises if the reference draws random numbers: a recomputation would draw others.

        A generator whose state has changed is not proof, since another thread may have drawn from it; so the reference
        then runs a second time, observed."""
        plain: Reference = self
        while isinstance(plain, Vjp):
            plain = plain.of
        assert isinstance(plain, Plain)
        if plain.audit is not None and plain.audit.random is not None:
            raise RandomReferenceError(plain.name, *plain.audit.random)
        if torch._C._len_torch_dispatch_stack():  # A tracer has no real generator state.
            return pull()
        state = RandomState(self.of.signature.flatten(inputs))
        found = pull()
        if state.has_changed():
            with Audit(plain.name, plain.function, []) as audit:
                pull()
            if audit.random is not None:
                raise RandomReferenceError(plain.name, *audit.random)
        return found


def _leaf(tensor: torch.Tensor, needed: bool, differentiable: bool) -> torch.Tensor:
    """The leaf for an input while its gradient is computed. A tensor passed twice must be two leaves. If the gradient
    will itself be differentiated, the leaf must keep history and tangent: a view has both."""
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        tensor = tensor.clone()  # which autograd may keep
    leaf = tensor.view_as(tensor) if differentiable else tensor.detach()
    return leaf.requires_grad_() if needed and not leaf.requires_grad else leaf


@contextlib.contextmanager
def autograd_restored() -> Iterator[None]:
    """Autograd as at the top of the dispatcher, for a kernel that differentiates."""
    include = torch._C._dispatch_tls_local_include_set()
    exclude = torch._C._dispatch_tls_local_exclude_set() - _AUTOGRAD_KEYS
    with torch._C._ForceDispatchKeyGuard(include, exclude):
        yield
