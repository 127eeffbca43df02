"""The families of one op: which kernels each choice of `using` runs, and the operators that run them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import UnknownKernelError
from ..kernels import Deferred, emulation
from ..kernels.kernel import DEFAULT
from ..reference.forms import Plain
from . import registry
from .family import Family, Generation
from .written import Registration

DEVICES = ("cpu", "cuda")
DIRECTIONS = ("forward", "backward")
REFERENCE = "reference"
RESERVED = (DEFAULT, REFERENCE, "opsmith", "eager", "compile", "liger")
"""Names that no kernel may have. The last four are other contenders in a benchmark."""


class _Choice(threading.local):
    """The kernel that `using` has chosen on this thread. Not a ContextVar, which dynamo cannot trace. Set on the
    instance, since dynamo guards on instance attributes and not on class attributes."""

    def __init__(self) -> None:
        self.kernel: str | None = None


class Families:
    """`default` runs the default kernels, `named[name]` those of that name, `emulated[name]` either of them with "cuda"
    kernels emulated on the CPU. Other parts of opsmith reach an op's operators through these."""

    def __init__(self, name: str, plain: Plain, autocast: str, generation: Generation | None) -> None:
        self.name = name
        self.plain = plain
        self.autocast = autocast
        self.generation = generation
        self.named: dict[str, Family] = {}
        self.emulated: dict[str, Family] = {}
        self.registered: dict[tuple[str, str, str], Registration] = {}  # by direction, device and name
        self._parts: list[Callable[[Family], None]] = []  # written by the author, apart from kernels
        self._choice = _Choice()
        self._lock = threading.RLock()
        self.default = self._make(name, DEFAULT)

    def __iter__(self) -> Iterator[Family]:
        return iter((self.default, *self.named.values(), *self.emulated.values()))

    def close(self) -> None:
        for family in self:
            family.close()

    # --- choosing ---------------------------------------------------------------------------------------------

    def in_use(self) -> Family:
        """The family that this thread's calls run."""
        name = self._choice.kernel
        if emulation.state.active and (name or DEFAULT) in self.emulated:
            return self.emulated[name or DEFAULT]
        return self.default if name is None else self.named[name]

    @contextmanager
    def using(self, kernel: str) -> Iterator[None]:
        if kernel != DEFAULT:
            self._find(kernel)
        for given in self.registered.values():
            if given.name == kernel and isinstance(given.function, Deferred):
                given.function.require()
        before, self._choice.kernel = self._choice.kernel, None if kernel == DEFAULT else kernel
        try:
            yield
        finally:
            self._choice.kernel = before

    def _find(self, name: str, create: bool = False) -> Family:
        """The family of a named kernel; `create` makes one for a new name."""
        with self._lock:
            if name not in self.named:
                if not create and name != REFERENCE:
                    raise UnknownKernelError(self.name, name, [DEFAULT, REFERENCE, *self.named])
                self.named[name] = self._make(f"{self.name}__{name}", name)
                for given in self._kernels_of(name):
                    self.named[name].set(given)
            return self.named[name]

    def _default_for(self, direction: str, device: str) -> Registration | None:
        """The unnamed kernel, else the first one registered. But where kernels are generated, a named kernel only runs
        inside `using`."""
        unnamed = self.registered.get((direction, device, DEFAULT))
        if unnamed or self.generation is not None:
            return unnamed
        return next((r for r in self.registered.values() if (r.direction, r.device) == (direction, device)), None)

    def _kernel_of(self, choice: str, direction: str, device: str) -> Registration | None:
        """What a choice runs: the kernel of that name, else the default."""
        if choice == REFERENCE:
            return None
        return self.registered.get((direction, device, choice)) or self._default_for(direction, device)

    def _kernels_of(self, choice: str) -> list[Registration]:
        places = itertools.product(DIRECTIONS, DEVICES)
        return [given for direction, device in places if (given := self._kernel_of(choice, direction, device))]

    # --- parts written by the author --------------------------------------------------------------------------

    def write(self, part: Callable[[Family], None]) -> None:
        """Applies a part to every family, including those that are made later for named kernels."""
        self.default.forward.check_open()
        with self._lock:
            for family in self:
                part(family)
            self._parts.append(part)

    def register(self, given: Registration) -> None:
        """Adds a kernel to the family of its name, to the default family if it is the default, and to other families
        that have no kernel of their own for that device."""
        place = given.direction, given.device
        with self._lock:
            if given.name != DEFAULT:
                self._find(given.name, create=True)
            default_before = self._default_for(*place)
            self.registered[given.direction, given.device, given.name] = given
            try:
                if self._default_for(*place) is given:
                    self.default.set(given)
                for name, family in self.named.items():
                    if self._kernel_of(name, *place) is given:
                        family.set(given)
                if self.emulated or registry.every_op_detours():
                    self.emulate()
            except Exception:
                if default_before is not given:
                    del self.registered[given.direction, given.device, given.name]
                raise

    # --- making families --------------------------------------------------------------------------------------

    def emulate(self) -> None:
        """Makes a family for each choice of kernels whose "cuda" kernels can be emulated: there they are the "cpu"
        kernels. So a choice made inside `emulate` is part of the recorded or compiled graph, like one by `using`."""
        with self._lock:
            for choice in (DEFAULT, *self.named):
                self._emulate(choice)

    def _emulate(self, choice: str) -> None:
        chosen = self._kernels_of(choice)
        emulated = [each for given in chosen if (each := given.emulated)]
        kernels = {(each.direction, each.device): each for each in (*chosen, *emulated)}
        generation = self._generation_for(choice)
        needed = bool(emulated) or generation is not None
        former = self.emulated.get(choice)
        if former is not None and not (needed and kernels.keys() >= former.given.keys()):
            self.emulated.pop(choice).close()  # a kernel that cannot be emulated has replaced one that could
        if not needed:
            return
        if choice not in self.emulated:
            self.emulated[choice] = self._make(f"{self.name}__{choice}__emulated", choice)
            if generation is not None:
                generation.emulate(self.emulated[choice])
        for place, given in kernels.items():
            if self.emulated[choice].given.get(place) is not given:
                self.emulated[choice].set(given)

    def _generation_for(self, choice: str) -> Generation | None:
        """What generates the kernels of a choice."""
        return None if choice == REFERENCE else self.generation

    def _make(self, operator_name: str, choice: str) -> Family:
        """A family with every part that the author wrote, except the kernels of its choice."""
        with_kernels = self._generation_for(choice) is not None
        family = Family(operator_name, self.plain, self.autocast, self.generation, with_kernels)
        for part in self._parts:
            part(family)
        return family
