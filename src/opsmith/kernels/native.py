"""C++ functions on torch's stable ABI as kernels: a symbol in a shared library, called by the dispatcher.

The symbol is a boxed function, `extern "C" void name(StableIValue* stack, uint64_t inputs, uint64_t outputs)`, which
OPSMITH_EXPORT (opsmith/kernel.h) writes for an ordinary C++ function. Registering one needs no compiler and no binding:
torch's C shim takes the function's address.
"""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ..errors import DispatcherError, KernelSignatureError, OpsmithError, UnknownFunctionError
from ..reference.signature import schema_type
from ..toolchain import defined_symbols, load_library
from ..toolchain.elf import demangled, split_at_commas

NAMESPACE = "opsmith_kernels"
MARK = "opsmith_export_"
"""The prefix of a second symbol that OPSMITH_EXPORT writes: not everything that a library exports is a kernel. A change
of this or of DECLINED increases toolchain.portable.CONVENTION, because packages ship libraries that have them."""
DECLINED = "opsmith: the kernel declines this call"
"""The message by which a native function leaves a call to the reference (include/opsmith/decline.h)."""
INCLUDE_DIRECTORY = Path(__file__).parents[1] / "include"
_serial = itertools.count()


class NativeFunction:
    """The boxed C++ function `symbol` of the shared library at `path`."""

    entered_directly = True
    """Whether torch's dispatcher may call it without going through Python."""

    def __init__(self, path: str | Path, symbol: str) -> None:
        self._path = Path(path)
        self.symbol = symbol

    @property
    def path(self) -> Path:
        return self._path

    @property
    def module(self) -> str:
        """The Python module that declares it; empty for a function of a library that no module does."""
        return ""

    @property
    def ready(self) -> bool:
        """Whether the library is built: if not, asking for the address builds it."""
        return True

    @cached_property
    def address(self) -> int:
        library = load_library(self.path)
        try:
            getattr(library, MARK + self.symbol)
            function = getattr(library, self.symbol)
        except AttributeError:
            raise self.unknown() from None
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None
        return address

    @property
    def signature(self) -> str:
        """'torch::stable::Tensor (*)(torch::stable::Tensor, double)': the C++ function's type, by its compiler."""
        type_name = getattr(load_library(self.path), MARK + self.symbol)
        type_name.restype = ctypes.c_char_p
        return demangled(type_name().decode())

    @property
    def may_decline(self) -> bool:
        """Whether its library's code leaves calls to the reference."""
        return hasattr(load_library(self.path), "opsmith_may_decline")

    def unknown(self) -> OpsmithError:
        return UnknownFunctionError(self.path.name, self.symbol, exported_functions(self.path))

    def __str__(self) -> str:
        return f"C++ {self.symbol} ({self.path.name})"

    def __repr__(self) -> str:
        return f"NativeFunction({str(self.path)!r}, {self.symbol!r})"

    def emulated(self) -> NativeFunction | None:
        """The function as `emulate` runs it on CPU tensors; None where it does not."""
        return None

    def as_operator(self, schema: Callable[[str], str]) -> NativeOperator:
        """A private operator whose only kernel is this function."""
        return NativeOperator(self, schema)


def exported_functions(path: Path) -> list[str]:
    """What a library exports by OPSMITH_EXPORT."""
    return [name.removeprefix(MARK) for name in defined_symbols(path) if name.startswith(MARK)]


class NativeOperator:
    """A private operator whose only kernel is a native function; freed with this object. `call` returns NotImplemented
    where the function declines."""

    may_decline = False

    def __init__(self, function: NativeFunction, schema: Callable[[str], str]) -> None:
        base = f"{function.symbol}_{next(_serial)}"
        self.name = f"{NAMESPACE}::{base}"
        address = function.address
        wrong = difference(function.signature, schema(base))
        if wrong is not None:
            raise KernelSignatureError(str(function), what=f"its types are not the op's: {wrong}")
        self._definition = torch.library.Library(NAMESPACE, "FRAGMENT")
        self._definition.define(schema(base))
        self._implementation = _StableLibrary(NAMESPACE, "CompositeExplicitAutograd")
        self._implementation.impl(base, address)
        self.call: Callable[..., Any] = getattr(getattr(torch.ops, NAMESPACE), base).default._op
        self.may_decline = function.may_decline
        if self.may_decline:
            self.call = _or_not_implemented(self.call)


def _or_not_implemented(call: Callable[..., Any]) -> Callable[..., Any]:
    def declining(*args: Any) -> Any:
        try:
            return call(*args)
        except RuntimeError as error:
            if DECLINED not in str(error):
                raise
            return NotImplemented

    return declining


class _StableLibrary:
    """torch::Library through the C shim, so that a function's address can be registered from Python."""

    def __init__(self, namespace: str, dispatch_key: str) -> None:
        # torch's own library, already in the process.
        self._shim = load_library(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")
        self._handle = ctypes.c_void_p()
        file = __file__.encode()
        _check(
            self._shim.aoti_torch_library_init_impl(
                namespace.encode(), dispatch_key.encode(), file, 0, ctypes.byref(self._handle)
            ),
            "aoti_torch_library_init_impl",
        )

    def impl(self, name: str, address: int) -> None:
        # The shim's version argument only adapts calls *into* aten; a plain kernel registration ignores it.
        version = ctypes.c_uint64(0x020B000000000000)
        _check(
            self._shim.torch_library_impl(self._handle, name.encode(), ctypes.c_void_p(address), version),
            f"torch_library_impl({name})",
        )

    def __del__(self) -> None:
        if getattr(self, "_handle", None) and self._handle.value:
            self._shim.aoti_torch_delete_library_object(self._handle)


def _check(code: int, what: str) -> None:
    if code != 0:
        raise DispatcherError(what, what="torch's C shim refused the registration (its message is on stderr)")


# --- whether a C++ function takes and returns what an operator's schema says: torch does not check that --------------

# C++ types as they are demangled, and the types of a schema.
_TYPES = {
    "torch::stable::Tensor": "Tensor",
    "double": "float",
    "long": "int",
    "bool": "bool",
    "std::string": "str",
    "std::basic_string_view<char>": "str",
    "torch::headeronly::ScalarType": "ScalarType",
    "c10::ScalarType": "ScalarType",
}
_SPELLINGS = (
    (
        re.compile(r"std::(?:__cxx11::)?basic_string<char, std::char_traits<char>, std::allocator<char> ?>"),
        "std::string",
    ),
    (re.compile(r", std::allocator<[\w: <>]+? ?>(?= ?>)"), ""),
    (re.compile(r"\b(?:c10|torch::headeronly|torch)::(?:Header[Oo]nly)?ArrayRef<"), "std::vector<"),
    (re.compile(r"\b(?:const&?|&)|&"), ""),
    (re.compile(r"\blong long\b"), "long"),
)


def parameters_and_result(function: str) -> tuple[list[str], str]:
    """(parameters, result) of 'R (*)(A, B)', each as a schema spells it; other types stay C++."""
    result, _, rest = function.partition("(*)(")
    parameters = split_at_commas(rest.removesuffix(")"))
    return [] if parameters == ["void"] else [_as_schema(each) for each in parameters], _as_schema(result)


def difference(function: str, schema: str) -> str | None:
    """How a C++ function's types differ from a schema's; None where they agree."""
    parsed = torch._C.parse_schema(schema)
    wanted = [schema_type(argument.type) for argument in parsed.arguments]
    returned = [schema_type(result.type) for result in parsed.returns]
    given, result = parameters_and_result(function)
    results = split_at_commas(
        result.removeprefix("tuple<").removesuffix(">") if result.startswith("tuple<") else result
    )
    results = [] if results == ["void"] else results
    if given == wanted and [_as_schema(each) for each in results] == returned:
        return None
    own, called = (f"({', '.join(types)}) -> {_listed(out)}" for types, out in ((given, results), (wanted, returned)))
    return f"it is {own}, and the op calls {called}"


def _listed(types: Sequence[str]) -> str:
    return types[0] if len(types) == 1 else f"({', '.join(types)})"


def _as_schema(type: str) -> str:
    for pattern, spelled in _SPELLINGS:
        type = pattern.sub(spelled, type)
    type = type.strip()
    if inner := re.fullmatch(r"std::optional<(.*?) ?>", type):
        return f"{_as_schema(inner[1])}?"
    if inner := re.fullmatch(r"std::vector<(.*?) ?>", type):
        return f"{_as_schema(inner[1])}[]"
    if inner := re.fullmatch(r"std::tuple<(.*?) ?>", type):
        return f"tuple<{', '.join(_as_schema(each) for each in split_at_commas(inner[1]))}>"
    return _TYPES.get(type, type)
