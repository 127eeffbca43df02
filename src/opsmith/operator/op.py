"""Op: a reference, its kernels, and everything a production operator needs derived from them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch.compiler import is_compiling, is_dynamo_compiling

from ..errors import (
    NameTakenError,
    NotGeneratedError,
    RegistrationError,
    SamplesMissingError,
    UnknownKernelError,
    UnknownOpError,
)
from ..kernels import Deferred, Kernel, NativeFunction, emulation, languages
from ..kernels.kernel import DEFAULT
from ..reference.forms import Plain
from ..reference.modes import called_by_dynamo, called_while_traced, no_modes
from ..reference.signature import Signature, infer, split_name
from ..reference.tensors import copied_as_laid_out
from ..runtime import autocast, execution
from ..runtime.operator import exists
from . import call_errors, child_process, describe
from .call_errors import given_as
from .family import Family
from .generation import Generator
from .kernel_table import DEVICES, REFERENCE, TAKEN, KernelTable
from .samples import Cost, Sample, samples_of
from .written import Registration

Function = TypeVar("Function", bound=Callable[..., Any])

LAYOUTS = ("contiguous", "strided")
AUTOCAST_POLICIES = ("keep", "lower", "float32")

registry: dict[str, Op] = {}
_registry_lock = threading.RLock()
_everywhere = 0  # detours of every op, including those declared later


def op(name: str, mutates_args: Sequence[str] = (), autocast: str = "keep") -> Callable[[Callable[..., Any]], Op]:
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
    """

    return lambda function: declare(name, function, mutates_args, autocast)


def declare(
    name: str,
    function: Callable[..., Any],
    mutates_args: Sequence[str],
    autocast: str,
    generator: Generator | None = None,
) -> Op:
    """A new Op, declared under no mode of torch, wherever this is called from."""
    if is_dynamo_compiling():  # dynamo cannot trace a declaration
        _declare_while_traced(name, function, mutates_args, autocast, generator)
        return registry[name]
    with no_modes():
        return Op(name, function, mutates_args, autocast, generator)


@called_by_dynamo
def _declare_while_traced(*arguments: Any) -> None:
    with no_modes():
        Op(*arguments)


def get(name: str) -> Op:
    """The declared op of that name."""
    try:
        return registry[name]
    except KeyError:
        raise UnknownOpError(name, sorted(registry)) from None


def detour_every_op(change: int) -> None:
    """1: every op's call goes through `variant_in_use` from now on; -1: undo that."""
    global _everywhere
    with _registry_lock:
        _everywhere += change
        for each in registry.values():
            each._detour(change)


class _Chosen(threading.local):
    """The kernel that `using` has chosen on this thread. Not a ContextVar, which dynamo cannot trace. Set on the
    instance, since dynamo guards on instance attributes and not on class attributes."""

    def __init__(self) -> None:
        self.kernel: str | None = None


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
            raise RegistrationError(name, f"autocast={autocast_policy!r} is not one of {', '.join(AUTOCAST_POLICIES)}")
        self.name = name
        self.reference = function
        self.signature: Signature = infer(function, name, mutates_args)
        self.module = function.__module__ or "__main__"  # None: code run by exec
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = self.module
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        self.autocast = autocast_policy
        self.variants: dict[str, Family] = {}
        self.emulated: dict[str, Family] = {}
        self.samples: Callable[..., Iterator[Sample]] | None = None
        self.cost: Callable[..., Cost] | None = None
        self._chosen = _Chosen()
        self._lock = threading.RLock()
        self._generation = generator(name, function, self.signature) if generator is not None else None
        self._kernels = KernelTable(first_is_default=generator is None)
        self._written: list[Callable[[Family], None]] = []
        self._replace_former()
        self._plain = Plain(function, self.signature, name) if self._generation is None else self._generation.plain
        self.default = self._make_family(name, DEFAULT)
        # A call with only positional arguments goes straight to torch, without a detour through the family. In-place
        # ops always take the detour, and so does every op while some thread is inside `using`.
        self._fast = self.default.forward.attachment.call
        with _registry_lock:
            self._detours = int(self.default.inplace) + _everywhere
            registry[name] = self
        if _everywhere:  # declared inside `emulate`, e.g. by a module imported there
            self.make_emulated()

    def _replace_former(self) -> None:
        former = registry.get(self.name)
        if former is None:
            if exists(self.name):
                raise NameTakenError(self.name, "a library outside opsmith")
            return
        if former.module != self.module:
            raise NameTakenError(self.name, f"module {former.module}")
        former._close()

    def _close(self) -> None:
        for family in self._every_family():
            family.close()
        with _registry_lock:
            self._detours, self._fast = self._detours + 1, self.default.forward.call  # which raises now
            registry.pop(self.name, None)

    # --- calling ----------------------------------------------------------------------------------------------

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        try:
            if kwargs or self._detours or is_compiling():
                return self.variant_in_use()(args, kwargs)
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

    @property
    def schema(self) -> str:
        return self.signature.schema(self.name)

    @property
    def kernels(self) -> dict[str, dict[str, Kernel]]:
        """{device: {name: kernel}}."""
        found: dict[str, dict[str, Kernel]] = {}
        for family in (self.default, *self.variants.values()):
            for device, kernel in family.forward.kernels.items():
                found.setdefault(device, {}).setdefault(kernel.name, kernel)
        return found

    @property
    def inline(self) -> Callable[..., Any]:
        """The op as plain PyTorch, which torch.compile can fuse with what surrounds it."""
        return self._inline

    def _inline(self, *args: Any, **kwargs: Any) -> Any:
        values = self._bound(args, kwargs)
        return self.inline_like_call(autocast.cast_where_enabled(self.default.forward, values))

    def inline_like_call(self, args: Sequence[Any]) -> Any:
        """`inline` on all arguments in schema order; for an in-place op it returns what it changed, as a call does."""
        returned = self._plain.composite(*args)
        if not self.default.inplace:
            return returned
        changed = tuple(v for a, v in zip(self.signature.arguments, args, strict=True) if a.mutated)
        return changed[0] if len(changed) == 1 else changed

    @contextmanager
    def using(self, kernel: str) -> Iterator[Op]:
        """Context manager: this thread's calls run the kernel of that name, backward included; 'reference' runs
        none."""
        if kernel not in self.variants and kernel != DEFAULT:
            self._named_family(kernel)
        for given in self._kernels:
            if given.name == kernel and isinstance(given.function, Deferred):
                given.function.require()
        before = self._chosen.kernel
        self._chosen.kernel = None if kernel == DEFAULT else kernel
        self._detour(1)
        try:
            yield self
        finally:
            self._detour(-1)
            self._chosen.kernel = before

    def _detour(self, change: int) -> None:
        with self._lock:
            self._detours += change

    def prepare(self, *args: Any, **kwargs: Any) -> Op:
        """Compiles and checks everything that a call with these arguments needs, gradient included, by running it once
        on copies. For use before capturing a CUDA graph or serving requests."""
        values = self._bound(args, kwargs)
        tensors = self.signature.flatten(values)
        copies = [None if t is None else copied_as_laid_out(t).requires_grad_(t.requires_grad) for t in tensors]
        family = self.variant_in_use()
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

    def variant_in_use(self) -> Family:
        name = self._chosen.kernel
        if emulation.state.active and (name or DEFAULT) in self.emulated:
            return self.emulated[name or DEFAULT]
        return self.default if name is None else self.variants[name]

    def make_emulated(self) -> None:
        """Makes a family for each choice of kernels whose "cuda" kernels can be emulated: there they are the "cpu"
        kernels. So a choice made inside `emulate` is part of the recorded or compiled graph, like one by `using`."""
        with self._lock:
            for name in (DEFAULT, *self.variants):
                chosen = self._kernels.chosen(name)
                emulated = [each for given in chosen if (each := given.emulated)]
                kernels = {(each.direction, each.device): each for each in (*chosen, *emulated)}
                former = self.emulated.get(name)
                wanted = bool(emulated) or self._generates(name)
                if former is not None and not (wanted and kernels.keys() >= former.given.keys()):
                    self.emulated.pop(name).close()  # a kernel that cannot be emulated has replaced one that could
                if not wanted:
                    continue
                if name not in self.emulated:
                    self.emulated[name] = self._make_family(f"{self.name}__{name}__emulated", name)
                    if self._generation is not None and self._generates(name):
                        self._generation.emulate(self.emulated[name])
                for place, given in kernels.items():
                    if self.emulated[name].given.get(place) is not given:
                        self.emulated[name].set(given)

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
        self._check_device(device)
        if layout not in LAYOUTS:
            raise RegistrationError(self.name, f"layout={layout!r} is not one of {', '.join(LAYOUTS)}")
        self._check_kernel_name(name)
        if fn is None:
            return self._decorator(lambda f: self.register_kernel(device, f, layout=layout, name=name, inline=inline))
        if not callable(fn) and not isinstance(fn, NativeFunction):
            raise RegistrationError(self.name, f"a kernel is a function of the op's arguments, not {given_as(fn)}")
        self._check_function(device, fn, inline)
        self._register(Registration("forward", device, fn, layout, name or DEFAULT, inline=inline))
        return fn

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
        self._check_device(device)
        self._check_kernel_name(name)
        if fn is None:
            return self._decorator(
                lambda f: self.register_backward(device, f, layout=layout, name=name, saves=saves, inline=inline)
            )
        self._check_function(device, fn, inline)
        self._register(Registration("backward", device, fn, layout, name or DEFAULT, saves, inline))
        return fn

    @called_while_traced
    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Registers a gradient written with torch operators; same arguments as torch.library.register_autograd."""
        if any(argument.is_tensor and argument.keyword_only for argument in self.signature.arguments):
            raise RegistrationError(
                self.name, "register_autograd knows no gradient for a keyword-only tensor; make it positional, or "
                "write the gradient with register_backward"
            )  # fmt: skip
        if any(given.direction == "backward" for given in self._kernels):
            raise RegistrationError(
                self.name, "its gradient is written by register_backward already; use one of the two"
            )
        self._write(lambda family: family.differentiable.set_gradient(backward, setup_context))

    @called_while_traced
    def register_fake(self, fn: Function) -> Function:
        """Registers the shape rule: a function of fake tensors that returns empty tensors like the op's results."""
        self._write(lambda family: setattr(family.forward, "written_fake", fn))
        return fn

    @called_while_traced
    def register_vmap(self, fn: Function) -> Function:
        """Registers the batching rule, as in torch.library.register_vmap: fn(info, in_dims, *args) -> results,
        out_dims."""
        self._write(lambda family: setattr(family.forward, "written_vmap", fn))
        return fn

    def register_autocast(self, device_type: str, cast_inputs: torch.dtype) -> None:
        """In an autocast region of that device, floating inputs are cast to a dtype, as in
        torch.library.register_autocast."""
        self._check_device(device_type)
        if not isinstance(cast_inputs, torch.dtype):
            raise RegistrationError(self.name, f"register_autocast takes a torch.dtype, not {given_as(cast_inputs)}")
        self._write(lambda family: family.set_autocast(device_type, cast_inputs))

    @called_while_traced
    def register_samples(self, fn: Callable[..., Iterator[Sample]]) -> Callable[..., Iterator[Sample]]:
        """Registers what check, bench and demo run the op on: fn(device, dtype) yields opsmith.Sample."""
        self.samples = fn
        return fn

    @called_while_traced
    def register_cost(self, fn: Callable[..., Cost]) -> Callable[..., Cost]:
        """Registers the least bytes and operations of a call: fn(*args, **kwargs) -> opsmith.Cost."""
        self.cost = fn
        return fn

    def source(
        self, device: str, *args: Any, backward: bool = False, dtype: torch.dtype = torch.float32, **kwargs: Any
    ) -> str:
        """The generated source for 'cuda' or 'cpu'. It depends on dtypes and layouts: those of the given arguments,
        else of the op's first sample, else of contiguous tensors of one shape."""
        self._check_device(device)
        if self._generation is None:
            raise NotGeneratedError(self.name)
        values: Sequence[Any] | None = None
        if args or kwargs:
            values = self._bound(args, kwargs)
        elif self.samples is not None:
            sample = self.samples_for("cpu", dtype)[0]
            values = self._bound(sample.args, dict(sample.kwargs))
        return self._generation.source(device, values, backward, dtype)

    @property
    def is_generated(self) -> bool:
        """Whether opsmith generates the op's kernels from its reference."""
        return self._generation is not None

    def samples_for(self, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> list[Sample]:
        if self.samples is None:
            raise SamplesMissingError(self.name)
        return samples_of(self.samples(device, dtype), self.name)

    def _check_device(self, device: str) -> None:
        self.default.forward.check_open()
        if device not in DEVICES:
            raise RegistrationError(self.name, f"device={device!r} is not one of {', '.join(DEVICES)}")

    def _check_kernel_name(self, name: str | None) -> None:
        if name is not None and (not name.isidentifier() or name in TAKEN):
            raise RegistrationError(
                self.name, f"name={name!r} is not a name for a kernel: letters, digits and underscores, and none of "
                f"{', '.join(TAKEN)}"
            )  # fmt: skip

    def _check_function(self, device: str, fn: Callable[..., Any] | NativeFunction, inline: bool) -> None:
        if isinstance(fn, NativeFunction):
            if inline:
                raise RegistrationError(
                    self.name, f"inline=True lets torch.compile see Triton kernels, and {fn} is C++: leave it away"
                )
            return
        if inline and device != "cuda":
            raise RegistrationError(
                self.name, f"inline=True lets torch.compile see Triton kernels, which run on 'cuda', not on {device!r}"
            )
        languages.check(self.name, fn)

    def _decorator(self, register: Callable[[Any], Any]) -> Callable[[Function], Function]:
        def decorate(function: Function) -> Function:
            register(function)
            return function

        return decorate

    def _write(self, part: Callable[[Family], None]) -> None:
        """Applies a part to every family, including those that are made later for named kernels."""
        self.default.forward.check_open()
        with self._lock:
            for family in self._every_family():
                part(family)
            self._written.append(part)

    def _every_family(self) -> list[Family]:
        return [self.default, *self.variants.values(), *self.emulated.values()]

    def _register(self, given: Registration) -> None:
        """Adds a kernel to the family of its name, to the default family if it is the default, and to other families
        that have no kernel of their own for that device."""
        with self._lock:
            if given.name != DEFAULT:
                self._named_family(given.name, create=True)
            default_before = self._kernels.default_for(given.direction, given.device)
            self._kernels.put(given)
            try:
                if self._kernels.default_for(given.direction, given.device) is given:
                    self.default.set(given)
                for name, family in self.variants.items():
                    if self._kernels.used_by(name, given.direction, given.device) is given:
                        family.set(given)
                if self.emulated or _everywhere:
                    self.make_emulated()
            except Exception:
                if default_before is not given:
                    self._kernels.remove(given)
                raise

    def _named_family(self, name: str, create: bool = False) -> Family:
        with self._lock:
            if name not in self.variants:
                if not create and name != REFERENCE:
                    raise UnknownKernelError(self.name, name, [DEFAULT, REFERENCE, *self.variants])
                self.variants[name] = self._make_family(f"{self.name}__{name}", name)
                for given in self._kernels.chosen(name):
                    self.variants[name].set(given)
            return self.variants[name]

    def _generates(self, choice: str) -> bool:
        """Whether a choice of kernels includes generated ones."""
        return self._generation is not None and choice != REFERENCE

    def _make_family(self, operator_name: str, choice: str) -> Family:
        """A family with every part that the author wrote, except the kernels of its choice."""
        family = Family(operator_name, self._plain, self.autocast, self._generation, self._generates(choice))
        for part in self._written:
            part(family)
        return family

    # --- identity ---------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return describe.text(self)

    def __reduce__(self) -> tuple[Callable[..., Op], tuple[str, str]]:
        return _find, (self.name, self.module)

    def __copy__(self) -> Op:
        return self

    def __deepcopy__(self, memo: Any) -> Op:
        return self


def _find(name: str, module: str) -> Op:
    """How an Op is unpickled: the op of that name, importing the module that declares it if needed."""
    if name not in registry:
        child_process.import_module(module)
    return get(name)
