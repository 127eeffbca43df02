"""What a reference gives an operator: results, shape rule and pullback, all from one plain PyTorch function.

A reference runs in three positions. `run` is a kernel: below autograd, on plain tensors, its results settled
(contiguous, aliasing nothing). `composite` stands in for the operator on the Autograd key: torch's own operators record
it there, at whatever level of whatever transform the dispatcher has come to. `transformed` is called as a user's
function is, inside a torch.func transform.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._functorch.eager_transforms import enable_inplace_requires_grad
from torch.autograd.graph import _engine_run_backward
from torch.compiler import is_compiling
from torch.utils._python_dispatch import TorchDispatchMode

from .errors import RandomReferenceError, ReferenceResultError, UndeclaredMutationError, UnsavedInputError, described
from .schema import Argument, Kind, Signature, flatten, unflatten

AUTOGRAD_KEYS = (
    torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradFunctionality)
    | torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradOther)
    | torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradNestedTensor)
    | torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
)


SMALL = 1 << 20  # bytes of inputs that any reference can be run on without a thought for memory


class Reference:
    """An operator's specification."""

    name: str
    signature: Signature

    def composite(self, *args: Any) -> Any:
        raise NotImplementedError

    def transformed(self, *args: Any) -> Any:
        return self.composite(*args)

    def run(self, *args: Any) -> Any:
        raise NotImplementedError

    def fake(self, *args: Any) -> Any:
        raise NotImplementedError

    def expected(self, *args: Any) -> Any:
        """Tensors like the results for these real arguments, found without the imports that fake tensors begin with."""
        return self.fake(*on_meta(self.signature, args))


class Plain(Reference):
    """The author's function."""

    def __init__(self, function: Callable[..., Any], signature: Signature, name: str) -> None:
        self.function = function
        self.signature = signature
        self.name = name
        self.audit: Audit | None = None
        self._positional = sum(not argument.keyword_only for argument in signature.arguments)
        self._keywords = [argument.name for argument in signature.arguments[self._positional :]]

    def __call__(self, *args: Any) -> Any:
        """The author's function on all arguments in schema order, outside of any autocast region."""
        if is_compiling():  # dynamo traces torch.autocast, but not the guard that does the same at a tenth of the cost
            with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
                return self._arranged(args)
        with torch._C._DisableAutocast():
            return self._arranged(args)

    def _arranged(self, args: Sequence[Any]) -> Any:
        if not self._keywords:
            return self.function(*args)
        positional, keyword = args[: self._positional], args[self._positional :]
        return self.function(*positional, **dict(zip(self._keywords, keyword, strict=True)))

    def composite(self, *args: Any) -> Any:
        results = self.results(self(*args))
        if results is None:
            return None
        if is_compiling():  # A tracer does not see aliases; a copy too many is fused away.
            return self._packed([result.clone(memory_format=torch.contiguous_format) for result in results])
        inputs = [tensor for tensor in flatten(self.signature.arguments, args) if tensor is not None]
        settled: list[torch.Tensor] = []
        for result in results:
            result = result.contiguous()
            aliases = result._is_view() or any(result is other for other in (*inputs, *settled))
            settled.append(result.clone() if aliases else result)
        return self._packed(settled)

    def run(self, *args: Any) -> Any:
        inputs = self._frozen_inputs(args)
        versions = [_version(tensor) for _, tensor in inputs]
        if self.audit is None:
            audit = Audit(self.name, self.function, inputs)
            with audit:
                returned = self(*args)
            self.audit = audit
        else:
            returned = self(*args)
        for (argument, tensor), version in zip(inputs, versions, strict=True):
            if _version(tensor) != version:
                raise UndeclaredMutationError(self.name, argument, f"the reference {described(self.function)}")
        results = self.results(returned)
        if results is None:
            return None
        return self._packed(settle(results, [tensor for _, tensor in inputs]))

    def fake(self, *args: Any) -> Any:
        results = self.results(self(*args))
        if results is None:
            return None
        return self._packed([torch.empty(r.shape, dtype=r.dtype, device=r.device) for r in results])

    def expected(self, *args: Any) -> Any:
        # torch's shape rules are partly in Python, and the first use of one imports dynamo: more than a second. So the
        # reference itself tells, unless it might not fit into memory.
        tensors = [tensor for tensor in flatten(self.signature.arguments, args) if tensor is not None]
        small = sum(tensor.nbytes for tensor in tensors) <= SMALL
        if small or tensors[0].is_cuda:
            states = _random_state(tensors)
            copies = [tensor.clone() if argument.mutated else tensor for argument, tensor in self._named(args)]
            try:
                return self.run(*unflatten(self.signature.arguments, args, copies))
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
            finally:
                _restore_random_state(tensors, states)
        return self.fake(*on_meta(self.signature, args))

    def _named(self, args: Sequence[Any]) -> list[tuple[Argument, Any]]:
        """Each flattened tensor with its argument."""
        pairs = zip(self.signature.arguments, args, strict=True)
        return [(argument, tensor) for argument, value in pairs for tensor in flatten([argument], [value])]

    def results(self, returned: Any) -> list[torch.Tensor] | None:
        """What the function returned as a list, checked against its annotation; None for an in-place op."""
        kinds = self.signature.results
        if not kinds:
            return None
        if kinds == (Kind.TENSOR,):
            if isinstance(returned, torch.Tensor):
                return [returned]
            raise ReferenceResultError(self.name, self.function, "one Tensor", _told(returned))
        listed = list(returned) if isinstance(returned, (tuple, list)) else None
        expected = "a list of Tensors" if self.signature.returns_list else f"{len(kinds)} Tensors"
        if listed is None or not all(isinstance(result, torch.Tensor) for result in listed):
            raise ReferenceResultError(self.name, self.function, expected, _told(returned))
        if not self.signature.returns_list and len(listed) != len(kinds):
            raise ReferenceResultError(self.name, self.function, expected, f"{len(listed)}")
        return listed

    def _packed(self, results: list[torch.Tensor]) -> Any:
        if self.signature.returns_list:
            return results
        return results[0] if len(results) == 1 else tuple(results)

    def _frozen_inputs(self, args: Sequence[Any]) -> list[tuple[str, torch.Tensor]]:
        """The tensors that the function must leave as they are, each with its argument's name."""
        return [(a.name, tensor) for a, tensor in self._named(args) if tensor is not None and not a.mutated]


class Functional(Plain):
    """An in-place reference as a function: it works on copies of what it would change and returns them."""

    def __init__(self, inplace: Plain, name: str) -> None:
        mutated = [index for index, argument in enumerate(inplace.signature.arguments) if argument.mutated]

        def function(*args: Any) -> Any:
            copied = [value.clone() if index in mutated else value for index, value in enumerate(args)]
            inplace(*copied)
            changed = tuple(copied[index] for index in mutated)
            return changed[0] if len(changed) == 1 else changed

        function.__name__ = inplace.function.__name__
        super().__init__(function, inplace.signature.functional(), name)
        self._positional, self._keywords = len(inplace.signature.arguments), []


class Out(Plain):
    """The form that writes its results into tensors it is given: the operator itself, then a copy."""

    def __init__(self, of: Plain, operator: Callable[..., Any], name: str) -> None:
        count = len(of.signature.results)

        def function(*args: Any) -> None:
            results = of.results(operator(*args[:-count]))
            assert results is not None
            for out, result in zip(args[-count:], results, strict=True):
                if out.shape != result.shape or out.dtype != result.dtype:
                    raise ReferenceResultError(
                        name, of.function, f"{_told(result)} into out=", f"an out= that is {_told(out)}"
                    )
                out.copy_(result)

        function.__name__ = of.function.__name__
        super().__init__(function, of.signature.out_variant(), name)
        self._positional, self._keywords = len(self.signature.arguments), []


class Vjp(Reference):
    """The pullback of another reference: gradients of its results in, the gradients asked for out.

    It runs the other reference again and lets torch differentiate that, so it agrees with torch's own gradient at every
    kink and needs nothing saved but the inputs."""

    def __init__(self, of: Reference, name: str) -> None:
        self.of = of
        self.name = name
        self.signature = of.signature.backward()
        self._grads = 1 if of.signature.returns_list else len(of.signature.results)
        self._inputs = slice(self._grads, self._grads + len(of.signature.arguments))

    def split(self, args: Sequence[Any]) -> tuple[list[torch.Tensor | None], Sequence[Any], list[bool]]:
        """The backward operator's arguments as (gradients of the results, the forward's arguments, needs)."""
        grads = list(args[0]) if self.of.signature.returns_list else list(args[: self._grads])
        return grads, args[self._inputs], args[-1]

    def run(self, *args: Any) -> Any:
        grads, inputs, needs = self.split(args)
        with autograd_restored(), torch.enable_grad(), self._no_random_numbers(inputs):
            return self._pullback(grads, inputs, needs, differentiable=False)

    def composite(self, *args: Any) -> Any:
        grads, inputs, needs = self.split(args)
        with torch.enable_grad(), enable_inplace_requires_grad(True), self._no_random_numbers(inputs):
            return self._pullback(grads, inputs, needs, differentiable=True)

    def transformed(self, *args: Any) -> Any:
        grads, inputs, needs = self.split(args)
        with self._no_random_numbers(inputs):
            return self._transformed_pullback(grads, inputs, needs)

    def fake(self, *args: Any) -> Any:
        _, inputs, needs = self.split(args)
        tensors = flatten(self.of.signature.arguments, inputs)
        return [
            torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            for tensor, needed in zip(tensors, needs, strict=True)
            if needed and tensor is not None
        ]

    def _pullback(
        self, grads: list[torch.Tensor | None], inputs: Sequence[Any], needs: list[bool], *, differentiable: bool
    ) -> list[torch.Tensor]:
        arguments = self.of.signature.arguments
        tensors = self._available(inputs)
        leaves = [
            None if tensor is None else _leaf(tensor, needed, differentiable)
            for tensor, needed in zip(tensors, needs, strict=True)
        ]
        wanted = [leaf for leaf, needed in zip(leaves, needs, strict=True) if needed and leaf is not None]
        results = self._forward(unflatten(arguments, inputs, leaves), self.of.composite)
        pairs = [(r, g) for r, g in zip(results, grads, strict=True) if g is not None and r.requires_grad]
        if not pairs or not wanted:
            return [torch.zeros_like(leaf, memory_format=torch.contiguous_format) for leaf in wanted]
        # torch.autograd.grad, less its checks of shapes, whose first use imports sympy: half a second.
        found = _engine_run_backward(
            tuple(result for result, _ in pairs), tuple(grad.to(result.dtype) for result, grad in pairs),
            differentiable, differentiable, tuple(wanted), allow_unreachable=True, accumulate_grad=False,
        )  # fmt: skip
        settled = []
        for leaf, grad in zip(wanted, found, strict=True):
            grad = torch.zeros_like(leaf) if grad is None else grad
            settled.append(grad.contiguous())
        if differentiable:
            return settled
        return settle([grad.detach() for grad in settled], [t for t in (*tensors, *grads) if t is not None])

    def _transformed_pullback(
        self, grads: list[torch.Tensor | None], inputs: Sequence[Any], needs: list[bool]
    ) -> list[torch.Tensor]:
        """The same inside a transform: torch.func.vjp opens a level of its own, which the others compose with."""
        arguments = self.of.signature.arguments
        tensors = self._available(inputs)
        chosen = [index for index, needed in enumerate(needs) if needed and tensors[index] is not None]
        defined = [grad for grad in grads if grad is not None]

        def forward(*leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
            filled = list(tensors)
            for index, leaf in zip(chosen, leaves, strict=True):
                filled[index] = leaf
            results = self._forward(unflatten(arguments, inputs, filled), self.of.transformed)
            return tuple(result for result, grad in zip(results, grads, strict=True) if grad is not None)

        wanted: list[torch.Tensor] = [tensors[index] for index in chosen]  # type: ignore[misc]
        if not defined or not wanted:
            return [torch.zeros_like(tensor) for tensor in wanted]
        results, pull = torch.func.vjp(forward, *wanted)[:2]
        found = pull(tuple(grad.to(result.dtype) for grad, result in zip(defined, results, strict=True)))
        return [grad.contiguous() for grad in found]

    def _forward(self, args: Sequence[Any], position: Callable[..., Any]) -> list[torch.Tensor]:
        if isinstance(self.of, Plain):  # The author's function itself: nobody will see how these results are laid out.
            results = self.of.results(self.of(*args))
            assert results is not None
            return results
        return list(position(*args))

    def _available(self, inputs: Sequence[Any]) -> list[torch.Tensor | None]:
        """The forward's tensors, refused where a backward kernel kept only their shape."""
        for argument, value in zip(self.of.signature.arguments, inputs, strict=True):
            if argument.is_tensor and any(is_placeholder(tensor) for tensor in flatten([argument], [value])):
                missing = [
                    other.name
                    for other, given in zip(self.of.signature.arguments, inputs, strict=True)
                    if other.is_tensor and any(is_placeholder(tensor) for tensor in flatten([other], [given]))
                ]
                raise UnsavedInputError(self.name, missing)
        return flatten(self.of.signature.arguments, inputs)

    @contextlib.contextmanager
    def _no_random_numbers(self, inputs: Sequence[Any]) -> Iterator[None]:
        plain: Reference = self
        while isinstance(plain, Vjp):
            plain = plain.of
        assert isinstance(plain, Plain)
        if plain.audit is not None and plain.audit.random is not None:
            raise RandomReferenceError(plain.name, plain.audit.random)
        if torch._C._len_torch_dispatch_stack():  # A tracer holds no real generator state to look at.
            yield
            return
        tensors = flatten(self.of.signature.arguments, inputs)
        before = _random_state(tensors)
        yield
        after = _random_state(tensors)
        if any(not torch.equal(old, new) for old, new in zip(before, after, strict=True)):
            raise RandomReferenceError(plain.name, described(plain.function))


class Audit(TorchDispatchMode):
    """Watches a reference's first run: a write to an undeclared input raises before it happens, a draw of random
    numbers is noted, each with the author's own line."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # Telling dynamo to keep out would import it: a second and more, on an op's first call.

    def __init__(self, name: str, function: Callable[..., Any], inputs: list[tuple[str, torch.Tensor]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.random: str | None = None
        self._name = name
        self._function = function
        self._owners = {_storage(tensor): argument for argument, tensor in inputs}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.random is None and torch.Tag.nondeterministic_seeded in func.tags:
            self.random = f"{func._schema.name} at {self._line()}"
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.is_write and isinstance(value, torch.Tensor) and _storage(value) in self._owners:
                culprit = f"the reference {self._function.__name__} ({self._line()}, {func._schema.name})"
                raise UndeclaredMutationError(self._name, self._owners[_storage(value)], culprit)
        return func(*args, **(kwargs or {}))

    def _line(self) -> str:
        """The innermost line of the author's file on the stack."""
        code = getattr(self._function, "__code__", None)
        frame = sys._getframe(1)
        while code is not None and frame.f_back is not None and frame.f_code.co_filename != code.co_filename:
            frame = frame.f_back
        if code is None or frame.f_code.co_filename != code.co_filename:
            return described(self._function)
        return f"{os.path.basename(code.co_filename)}:{frame.f_lineno}"


def _leaf(tensor: torch.Tensor, needed: bool, differentiable: bool) -> torch.Tensor:
    """What stands for an input while its gradient is taken. A tensor given twice must be two leaves; one whose gradient
    will be differentiated in turn must keep its history and its tangent: a view has both."""
    leaf = tensor.view_as(tensor) if differentiable else tensor.detach()
    return leaf.requires_grad_() if needed and not leaf.requires_grad else leaf


def settle(results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Results as an `op` returns them: contiguous, and sharing memory neither with an input nor with each other."""
    taken = {_storage(tensor) for tensor in inputs}
    settled: list[torch.Tensor] = []
    for result in results:
        result = result.resolve_conj().resolve_neg().contiguous()
        if _storage(result) in taken:
            result = result.clone(memory_format=torch.contiguous_format)
        taken.add(_storage(result))
        settled.append(result)
    return settled


def is_placeholder(tensor: torch.Tensor | None) -> bool:
    """Whether a tensor has a shape and no memory: what stands for an input that a backward kernel did not ask for."""
    if tensor is None or type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        return False
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor) or tensor.numel() == 0:
        return False
    return bool(tensor.untyped_storage().nbytes() == 0)


def placeholder(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape, dtype and device that holds no memory; computing with it raises."""
    empty = torch.empty_strided(tensor.shape, (0,) * tensor.ndim, dtype=tensor.dtype, device=tensor.device)
    empty.untyped_storage().resize_(0)
    return empty


@contextlib.contextmanager
def autograd_restored() -> Iterator[None]:
    """Autograd as it is at the top of the dispatcher, for a kernel that differentiates."""
    include = torch._C._dispatch_tls_local_include_set()
    exclude = torch._C._dispatch_tls_local_exclude_set() - AUTOGRAD_KEYS
    with torch._C._ForceDispatchKeyGuard(include, exclude):
        yield


def on_meta(signature: Signature, args: Sequence[Any]) -> list[Any]:
    """The arguments with tensors that have shapes and strides, and no memory."""
    metas = [
        None
        if tensor is None
        else torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        for tensor in signature.flatten(args)
    ]
    return signature.unflatten(args, metas)


def _restore_random_state(tensors: Sequence[torch.Tensor | None], states: Sequence[torch.Tensor]) -> None:
    for generator, state in zip(_generators(tensors), states, strict=True):
        generator.set_state(state)


def _generators(tensors: Sequence[torch.Tensor | None]) -> list[torch.Generator]:
    generators = [torch.default_generator]
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        indices = {tensor.device.index for tensor in tensors if tensor is not None and tensor.is_cuda}
        generators += [torch.cuda.default_generators[index] for index in sorted(indices)]
    return generators


def _random_state(tensors: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
    return [generator.get_state() for generator in _generators(tensors)]


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else id(tensor)


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _told(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a {value.dtype} Tensor of shape {tuple(value.shape)}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__} of {', '.join(type(item).__name__ for item in value) or 'nothing'}"
    return f"a {type(value).__name__}"
