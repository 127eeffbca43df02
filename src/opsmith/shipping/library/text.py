"""The source of a package's library: its operators and kernels as the constant data of native/data.h."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...generate.source import Source
from ...generate.tuning import planner_tuning
from ...kernels.cuda_source import CudaSource
from ...reference.tensors import scalar_type
from ...toolchain.nvrtc import FEATURES
from .contents import Contents, Entry, GpuSource, Native, Program, letters

LEVELS = (("AVX512", "x86-64-v4"), ("AVX2", "x86-64-v3"), ("DEFAULT", "x86-64"))
"""The levels of processors, newest first: as generated kernels and as extensions name them."""
_NULL = "nullptr"


@dataclass(frozen=True)
class NamedKernel:
    """A kernel that C++ launches by name: the line that declares it, its symbol, its parameters as rows of host.py, and
    the binaries with what each runs on."""

    name: str
    declared: str
    entry: str
    parameters: Sequence[Sequence[str | int]]
    images: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Symbols:
    """What the data refers to: kernels by level and source, binaries by source with what each runs on, functions of
    extensions by extension, name and level (None: code for any processor), the functions that give host code the
    kernels of a CudaSource, and those kernels."""

    kernels: Mapping[tuple[str, Source], str]
    images: Mapping[Source, Sequence[tuple[str, str]]]
    natives: Mapping[tuple[str, str, str | None], str]
    hosts: Mapping[str, CudaSource | None]
    launched: Mapping[CudaSource, Sequence[NamedKernel]]


def source(package: str, contents: Contents, symbols: Symbols) -> str:
    arrays = _Arrays()
    operators = [_operator(entry, symbols, arrays) for entry in contents.entries.values()]
    on_cpu = [
        _braced([scalar_type(dtype), _leveled(sources, symbols)]) for dtype, sources in contents.combines_on_cpu.items()
    ]
    on_gpu = [
        _braced([scalar_type(dtype), jobs, _gpu_kernel(b"", GpuSource(text, (1, 1, 1, 1)), symbols, arrays)])
        for (dtype, jobs), text in contents.combines_on_gpu.items()
    ]
    data = [
        json.dumps(package),
        arrays.add("int64_t", planner_tuning()),
        arrays.add("CpuCombineData", on_cpu),
        arrays.add("GpuCombineData", on_gpu),
        arrays.add("OperatorData", operators),
        arrays.add("HostData", [_host(symbol, kernels, symbols, arrays) for symbol, kernels in symbols.hosts.items()]),
    ]
    launched = [kernel.images for kernels in symbols.launched.values() for kernel in kernels]
    images = sorted({symbol for each in (*symbols.images.values(), *launched) for symbol, _ in each})
    return "\n".join(
        [
            f"// The operators of {package}, and their kernels. Written by opsmith build --library.",
            "#include <data.h>",
            "",
            "using namespace opsmith::shipped;",
            "using opsmith::ParameterInfo, opsmith::ValueKind;",
            "",
            'extern "C" {',
            *(
                f"void {symbol}(int64_t begin, int64_t end, void* parameters);"
                for symbol in sorted(set(symbols.kernels.values()))
            ),
            *(
                f"void {symbol}(uint64_t* stack, uint64_t inputs, uint64_t outputs);"
                for symbol in sorted(set(symbols.natives.values()))
            ),
            # Weak: not every extension includes opsmith's headers.
            *(f"__attribute__((weak)) void {symbol}(const opsmith::Host* host);" for symbol in sorted(symbols.hosts)),
            *(f"extern const char {symbol}[];" for symbol in images),
            "}",
            "",
            *arrays.lines,
            "",
            f"static const LibraryData data = {_braced(data)};",
            f"static const bool published = (publish_all(data, std::make_index_sequence<{len(operators)}>()), true);",
            "",
        ]
    )


class _Arrays:
    """Constant arrays, each written once."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names: dict[str, str] = {}

    def add(self, type: str, items: Iterable[object]) -> str:
        """The name of an array of these items, as a Span is made from it."""
        text = _braced(items)
        if text == "{}":
            return "{}"
        declared = f"{type} {text}"
        if declared not in self._names:
            name = self._names[declared] = f"array_{len(self._names)}"
            self.lines.append(f"static const {type} {name}[] = {text};")
        return self._names[declared]


def _operator(entry: Entry, symbols: Symbols, arrays: _Arrays) -> str:
    signature = entry.signature
    results = "l" if signature.returns_list else "t" * len(signature.results)
    texts = (
        entry.name,
        signature.schema(entry.base),
        " ".join(argument.name for argument in signature.arguments),
        (letters(signature) or "") if entry.is_served else "",
        "".join("01"[static] for static in entry.statics),
        results,
    )
    programs = [_program(program, symbols, arrays) for program in entry.programs.values()]
    natives = [_native(native, symbols, arrays) for native in entry.natives]
    flag = _flag(entry.depends_on_default_dtype)
    return _braced(
        [*map(json.dumps, texts), flag, arrays.add("ProgramData", programs), arrays.add("NativeData", natives)]
    )


def _program(program: Program, symbols: Symbols, arrays: _Arrays) -> str:
    on_cpu = [
        _braced([arrays.add("uint8_t", layout), _leveled(sources, symbols)])
        for layout, sources in program.on_cpu.items()
    ]
    on_gpu = [_gpu_kernel(layout, kernel, symbols, arrays) for layout, kernel in program.on_gpu.items()]
    return _braced(
        [
            _device(program.device),
            arrays.add("int64_t", program.numbers),
            arrays.add("int64_t", program.key),
            arrays.add("CpuKernelData", on_cpu),
            arrays.add("GpuKernelData", on_gpu),
        ]
    )


def _native(native: Native, symbols: Symbols, arrays: _Arrays) -> str:
    name, function = native.function.extension.name, native.function.symbol
    levels = [symbols.natives.get((name, function, level), _NULL) for _, level in LEVELS]
    if levels[-1] == _NULL:
        levels[-1] = symbols.natives[name, function, None]
    positions = arrays.add("int", native.positions)
    return _braced(
        [_device(native.device), _braced(levels), positions, _flag(native.contiguous), _flag(native.keeps_layout)]
    )


def _host(symbol: str, source: CudaSource | None, symbols: Symbols, arrays: _Arrays) -> str:
    kernels = symbols.launched.get(source, ()) if source is not None else ()
    return _braced([symbol, arrays.add("NamedKernelData", [_named(each, arrays) for each in kernels])])


def _named(kernel: NamedKernel, arrays: _Arrays) -> str:
    parameters = [
        _braced([json.dumps(name), json.dumps(type), size, f"ValueKind({kind})", f"ValueKind({element})", *rest])
        for name, type, size, kind, element, *rest in kernel.parameters
    ]
    texts = map(json.dumps, (kernel.name, kernel.declared, kernel.entry))
    return _braced([*texts, arrays.add("ParameterInfo", parameters), arrays.add("Image", _images(kernel.images))])


def _images(built: Sequence[tuple[str, str]]) -> list[str]:
    return [_braced([*_architecture(target), symbol]) for symbol, target in built]


def _architecture(target: str) -> list[str]:
    """Its number, whether it is PTX, and whether it runs on that GPU alone."""
    number = "".join(filter(str.isdigit, target))
    return [number, _flag(target.startswith("compute_")), _flag(target.endswith(tuple(FEATURES)))]


def _leveled(sources: Mapping[str, Source], symbols: Symbols) -> str:
    return _braced(symbols.kernels[level, sources[level]] if level in sources else _NULL for level, _ in LEVELS)


def _gpu_kernel(layout: bytes, kernel: GpuSource, symbols: Symbols, arrays: _Arrays) -> str:
    images = _images(symbols.images[kernel.source])
    entry = json.dumps(kernel.source.entry)
    return _braced([arrays.add("uint8_t", layout), entry, _braced(kernel.tiles), arrays.add("Image", images)])


def _device(name: str) -> str:
    return {"cpu": "kCpu", "cuda": "kGpu"}[name]


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _braced(items: Iterable[object]) -> str:
    return f"{{{', '.join(map(_item, items))}}}"


def _item(item: object) -> str:
    # The most negative number has no literal: it is a minus before a number that is too large.
    return "INT64_MIN" if item == -(1 << 63) else str(int(item)) if isinstance(item, int) else str(item)
