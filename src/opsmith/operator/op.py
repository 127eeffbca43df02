"""Op: a reference, its kernels, and everything a production operator needs derived from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch.compiler import is_compiling, is_dynamo_compiling

from ..errors import (
    AutocastDtypeError,
    AutocastPolicyError,
    GradientTakenError,
    InlineKernelError,
    KernelNameError,
    KernelTypeError,
    KeywordOnlyTensorError,
    LayoutError,
    NotAFunctionError,
    NotGeneratedError,
    SamplesMissingError,
    UnknownDeviceError,
)
from ..kernels import Kernel, NativeFunction, languages
from ..kernels.kernel import DEFAULT
from ..reference.forms import Plain
from ..reference.modes import called_by_dynamo, called_while_traced, no_modes
from ..reference.signature import Signature, infer, split_name
from ..reference.tensors import copied_as_laid_out
from ..runtime import autocast, execution
from . import call_errors, describe, registry
from .call_errors import given_as
from .families import DEVICES, RESERVED, Families
from .family import Generator
from .samples import Cost, Sample, samples_of
from .written import Registration

Function = TypeVar("Function", bound=Callable[..., Any])

LAYOUTS = ("contiguous", "strided")
AUTOCAST_POLICIES = ("keep", "lower", "float32")


def op(
    name: str,
    mutates_args: Sequence[str] = (),
    autocast: str = "keep",
    prebuild: Callable[..., Iterator[Sample]] | None = None,
) -> Callable[[Callable[..., Any]], Op]:
    """Makes a complete operator from a plain PyTorch function.

    >>> @opsmith.op("mylib::mish")
    ... def mish(x: torch.Tensor) -> torch.Tensor:
    ...     return x * torch.tanh(torch.nn.functional.softplus(x))

    The function is the operator's specification. First and second gradients, forward-mode AD, vmap, fake tensors,
    torch.compile and torch.export are derived from it. The register_* methods replace each part.

    Args:
        name: 'namespace::name', as torch.ops will know it.
        mutates_args: the tensors the function changes in place; it then returns None and calling the op returns them.
        autocast: what an autocast region does to floating-point inputs: 'keep' their dtype, 'lower' them to the
            region's dtype, or cast them to 'float32'.
        prebuild: further calls that `opsmith build` builds kernels for, as a function like `register_samples` takes.
    """

    return lambda function: declare(name, function, mutates_args, autocast, prebuild=prebuild)


def declare(
    name: str,
    function: Callable[..., Any],
    mutates_args: Sequence[str],
    autocast: str,
    generator: Generator | None = None,
    prebuild: Callable[..., Iterator[Sample]] | None = None,
) -> Op:
    """A new Op, declared under no mode of torch, wherever this is called from."""
    if is_dynamo_compiling():  # dynamo cannot trace a declaration
        _declare_while_traced(name, function, mutates_args, autocast, generator)
        return registry.get(name)
    with no_modes():
        made = Op(name, function, mutates_args, autocast, generator)
    made.prebuild = prebuild
    return made


@called_by_dynamo
def _declare_while_traced(*arguments: Any) -> None:
    with no_modes():
        Op(*arguments)


class Op:
    """A complete PyTorch operator. Call it like the function it was made from; torch knows it as
    torch.ops.<namespace>.<name>."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        mutates_args: Sequence[str],
        autocast_policy: str,
        generator: Generator | None = None,
    ) -> None:
        split_name(name)
        if autocast_policy not in AUTOCAST_POLICIES:
            raise AutocastPolicyError(name, given=autocast_policy, accepted=AUTOCAST_POLICIES)
        self.name = name
        self.reference = function
        self.signature: Signature = infer(function, name, mutates_args)
        self.samples: Callable[..., Iterator[Sample]] | None = None
        self.prebuild: Callable[..., Iterator[Sample]] | None = None
        self.cost: Callable[..., Cost] | None = None
        self.__module__ = function.__module__ or "__main__"  # None: code run by exec
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        former = registry.replaced(name, self.__module__)
        generation = generator(name, function, self.signature) if generator is not None else None
        if former is not None:
            former._close()
        plain = Plain(function, self.signature, name) if generation is None else generation.plain
        # What other parts of opsmith reach: the op's operators, by choice of kernels.
        self._families = Families(name, plain, autocast_policy, generation)
        # A call with only positional arguments goes straight to torch, without a detour through the family. In-place
        # ops always take the detour, and so does every op while some thread is inside `using` or `emulate`.
        default = self._families.default
        self._fast = default.forward.attachment.call
        self._detours = int(default.inplace)
        registry.add(self)
        if registry.every_op_detours():  # declared inside `emulate`, e.g. by a module imported there
            self._families.emulate()

    def _close(self) -> None:
        self._families.close()
        self._fast = self._families.default.forward.call  # which raises now
        self._detour(1)
        registry.registry.pop(self.name, None)

    # --- calling ----------------------------------------------------------------------------------------------

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        try:
            if kwargs or self._detours or is_compiling():
                return self._families.in_use()(args, kwargs)
            return self._fast(*args)
        except (RuntimeError, TypeError, AttributeError) as error:
            explained = call_errors.explain(self.name, self.signature, error, args, kwargs)
            if explained is None:
                raise
            raise explained from error

    def _bound(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Every argument in order, for a call that does not go through the dispatcher."""
        try:
            return self.signature.bind_call(args, kwargs)
        except TypeError as error:
            raise call_errors.explain(self.name, self.signature, error, args, kwargs) or error from None

    def _detour(self, change: int) -> None:
        with registry.lock:
            self._detours += change

    @property
    def schema(self) -> str:
        """The operator's schema, as torch prints it."""
        return self.signature.schema(self.name)

    @property
    def kernels(self) -> dict[str, dict[str, Kernel]]:
        """{device: {name: kernel}}."""
        found: dict[str, dict[str, Kernel]] = {}
        for family in (self._families.default, *self._families.named.values()):
            for device, kernel in family.forward.kernels.items():
                found.setdefault(device, {}).setdefault(kernel.name, kernel)
        return found

    def inline(self, *args: Any, **kwargs: Any) -> Any:
        """The op as plain PyTorch, which torch.compile can fuse with what surrounds it."""
        values = self._bound(args, kwargs)
        return self._inline_call(autocast.cast_where_enabled(self._families.default.forward, values))

    def _inline_call(self, args: Sequence[Any]) -> Any:
        """`inline` on all arguments in schema order; for an in-place op it returns what it changed, as a call does."""
        returned = self._families.plain.composite(*args)
        return self.signature.changed(args) if self.signature.mutated else returned

    @contextmanager
    def using(self, kernel: str) -> Iterator[Op]:
        """Context manager: this thread's calls run the kernel of that name, backward included; 'reference' runs
        none."""
        with self._families.using(kernel):
            self._detour(1)
            try:
                yield self
            finally:
                self._detour(-1)

    def prepare(self, *args: Any, **kwargs: Any) -> Op:
        """Compiles and checks everything that a call with these arguments needs, gradient included, by running it once
        on copies. For use before capturing a CUDA graph or serving requests."""
        values = self._bound(args, kwargs)
        tensors = self.signature.flatten(values)
        copies = [None if t is None else copied_as_laid_out(t).requires_grad_(t.requires_grad) for t in tensors]
        family = self._families.in_use()
        if family.inplace:
            with torch.no_grad():
                scratch = [None if t is None else copied_as_laid_out(t) for t in tensors]
                family.forward.call_arranged(self.signature.unflatten(values, scratch))
        with torch.enable_grad():
            returned = family.differentiable.call_arranged(self.signature.unflatten(values, copies))
            targets = [result for result in execution.as_list(returned) if result.requires_grad]
            leaves = [tensor for tensor in copies if tensor is not None and tensor.requires_grad]
            if targets and leaves:
                torch.autograd.grad(targets, leaves, [torch.ones_like(r) for r in targets], allow_unused=True)
        return self

    # --- parts written by the author --------------------------------------------------------------------------

    @called_while_traced
    def register_kernel(
        self,
        device: str,
        fn: Callable[..., Any] | NativeFunction | None = None,
        layout: str = "contiguous",
        name: str | None = None,
        inline: bool = False,
    ) -> Any:
        """Registers a kernel for 'cpu' or 'cuda': a function of the op's arguments that returns the op's results, or a
        C++ function.

        Tensors arrive contiguous unless layout='strided'. A Python kernel may return NotImplemented for arguments that
        it does not support; then the reference runs. Several kernels for one device have names, and `using` picks one;
        the default is the unnamed kernel, else the first. With inline=True torch.compile sees the Triton kernels that
        the function launches instead of one opaque op. Without fn, a decorator."""
        return self._register("forward", device, fn, layout, name, None, inline)

    @called_while_traced
    def register_backward(
        self,
        device: str,
        fn: Callable[..., Any] | NativeFunction | None = None,
        layout: str = "contiguous",
        name: str | None = None,
        saves: Sequence[str] | None = None,
        inline: bool = False,
    ) -> Any:
        """Registers a backward kernel: `def _(grads, x, output, *, needs)`.

        `grads` is a tuple with the gradient of each result, None where undefined. The parameters after it name the op's
        arguments and results that the kernel needs, and only those are saved. `needs` says which tensors need a
        gradient (needs.x). It returns one gradient per tensor argument, None where none is needed. A C++ function
        takes the gradients, then what `saves` names, then needs as bool[], and returns the needed gradients as a list.
        `inline` is as in register_kernel."""
        return self._register("backward", device, fn, layout, name, saves, inline)

    @called_while_traced
    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Registers a gradient written with torch operators; same arguments as torch.library.register_autograd."""
        self._check_callable("register_autograd", backward)
        for argument in self.signature.tensors:
            if argument.keyword_only:
                raise KeywordOnlyTensorError(self.name, argument=argument.name, function=self.reference)
        if any(given.direction == "backward" for given in self._families.registered.values()):
            raise GradientTakenError(self.name, method="register_backward")
        self._families.write(lambda family: family.differentiable.set_gradient(backward, setup_context))

    @called_while_traced
    def register_fake(self, fn: Function) -> Function:
        """Registers the shape rule: a function of fake tensors that returns empty tensors like the op's results."""
        self._check_callable("register_fake", fn)
        self._families.write(lambda family: setattr(family.forward, "written_fake", fn))
        return fn

    @called_while_traced
    def register_vmap(self, fn: Function) -> Function:
        """Registers the batching rule, as in torch.library.register_vmap: fn(info, in_dims, *args) -> results,
        out_dims."""
        self._check_callable("register_vmap", fn)
        self._families.write(lambda family: setattr(family.forward, "written_vmap", fn))
        return fn

    def register_autocast(self, device: str, cast_inputs: torch.dtype) -> None:
        """Registers the dtype that floating-point inputs are cast to in an autocast region of 'cpu' or 'cuda', as in
        torch.library.register_autocast."""
        self._check_device(device)
        if not isinstance(cast_inputs, torch.dtype):
            raise AutocastDtypeError(self.name, given=given_as(cast_inputs))
        self._families.write(lambda family: family.set_autocast(device, cast_inputs))

    @called_while_traced
    def register_samples(self, fn: Callable[..., Iterator[Sample]]) -> Callable[..., Iterator[Sample]]:
        """Registers what check, bench and demo run the op on: fn(device, dtype) yields opsmith.Sample."""
        self._check_callable("register_samples", fn)
        self.samples = fn
        return fn

    @called_while_traced
    def register_cost(self, fn: Callable[..., Cost]) -> Callable[..., Cost]:
        """Registers the least bytes and operations of a call: fn(*args, **kwargs) -> opsmith.Cost."""
        self._check_callable("register_cost", fn)
        self.cost = fn
        return fn

    def source(
        self, device: str, *args: Any, backward: bool = False, dtype: torch.dtype = torch.float32, **kwargs: Any
    ) -> str:
        """The generated source for 'cuda' or 'cpu'. It depends on dtypes and layouts: those of the given arguments,
        else of the op's first sample, else of contiguous tensors of one shape."""
        self._check_device(device)
        if self._families.generation is None:
            raise NotGeneratedError(self.name)
        values: Sequence[Any] | None = None
        if args or kwargs:
            values = self._bound(args, kwargs)
        elif self.samples is not None:
            sample = self.samples_for("cpu", dtype)[0]
            values = self._bound(sample.args, dict(sample.kwargs))
        return self._families.generation.source(device, values, backward, dtype)

    @property
    def is_generated(self) -> bool:
        """Whether opsmith generates the op's kernels from its reference."""
        return self._families.generation is not None

    def samples_for(self, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> list[Sample]:
        """The op's samples for a device and a dtype."""
        if self.samples is None:
            raise SamplesMissingError(self.name, self.reference)
        return samples_of(self.samples, self.name, device, dtype)

    def _register(
        self,
        direction: str,
        device: str,
        fn: Callable[..., Any] | NativeFunction | None,
        layout: str,
        name: str | None,
        saves: Sequence[str] | None,
        inline: bool,
    ) -> Any:
        """Registers a kernel; without a function, a decorator."""
        self._check_device(device)
        if layout not in LAYOUTS:
            raise LayoutError(self.name, given=layout, accepted=LAYOUTS)
        if name is not None and (not name.isidentifier() or name in RESERVED):
            raise KernelNameError(self.name, given=name, reserved=RESERVED)
        if fn is None:
            return lambda function: self._register(direction, device, function, layout, name, saves, inline)
        self._check_function(device, fn, inline)
        self._families.register(Registration(direction, device, fn, layout, name or DEFAULT, saves, inline))
        return fn

    def _check_callable(self, method: str, given: object) -> None:
        if not callable(given):
            raise NotAFunctionError(self.name, method=method, given=given_as(given))

    def _check_device(self, device: str) -> None:
        self._families.default.forward.check_open()
        if device not in DEVICES:
            raise UnknownDeviceError(self.name, given=device, accepted=DEVICES)

    def _check_function(self, device: str, fn: Callable[..., Any] | NativeFunction, inline: bool) -> None:
        if isinstance(fn, NativeFunction):
            if inline:
                raise InlineKernelError(self.name, what=f"and {fn} is C++: leave it out")
            return
        if not callable(fn):
            raise KernelTypeError(self.name, given=given_as(fn))
        if inline and device != "cuda":
            raise InlineKernelError(self.name, what=f"which run on 'cuda', not on {device!r}", function=fn)
        languages.check(self.name, fn)

    # --- identity ---------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return describe.text(self)

    def __reduce__(self) -> tuple[Callable[..., Op], tuple[str, str]]:
        return registry.find, (self.name, self.__module__)

    def __copy__(self) -> Op:
        return self

    def __deepcopy__(self, memo: Any) -> Op:
        return self
