"""Building a package's library: objects of its kernels for each level of processors, images for each GPU, one source
that registers them, all linked on torch's stable ABI."""

from __future__ import annotations

import functools
import hashlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import NothingToBuildError
from ...generate import emit_cpp
from ...generate.devices import INCLUDE_DIRECTORY, compile_cuda
from ...generate.source import Source
from ...kernels.cuda_source import CudaSource
from ...kernels.extension import Extension
from ...kernels.host import SET_HOST, parameter_row
from ...toolchain import Recipe, build_library
from ...toolchain.objects import build_objects, library_flags
from ...toolchain.portable import for_level, levels_of
from ...toolchain.process import run_together
from ...toolchain.relocatable import assemble, compile_text, merged
from ...toolchain.settings import max_jobs
from .contents import Contents
from .text import LEVELS, NamedKernel, Symbols, source

NATIVE = Path(__file__).parent / "native"
Task = Callable[[], Path]


@dataclass(frozen=True)
class Library:
    path: Path
    kernels: int


def build_library_of(
    package: str,
    contents: Contents,
    targets: Sequence[str],
    namespace: str | None = None,
    advance: Callable[[int, int], None] = lambda done, count: None,
) -> Library:
    """The library of what was collected for these targets, from the cache where nothing has changed. `namespace`:
    torch's, in place of the ops' own. `advance` is called with the number of finished kernels and of all."""
    if namespace is not None:
        renamed = [replace(entry, name=f"{namespace}::{entry.base}") for entry in contents.entries.values()]
        contents = replace(contents, entries={entry.name: entry for entry in renamed})
    if not any(entry.is_served for entry in contents.entries.values()):
        raise NothingToBuildError(package, contents.notes)
    label = f"the library of {package}"
    tasks = _Tasks(label)
    kernels = {each: tasks.kernel(*each) for each in _sources_on_cpu(contents)}
    images = {each: [tasks.image(each, target) for target in targets] for each in _sources_on_gpu(contents)}
    named = {
        source: {spelling: [tasks.unit(source, name, target) for target in targets] for spelling, name in names.items()}
        for source, names in contents.by_name.items()
    }
    tasks.run(advance)
    objects = [tasks.level(name) for name, _ in LEVELS if any(level == name for level, _ in kernels)]
    natives, hosts, linked, flags = _extensions(contents, targets)
    if images or named:
        objects.append(tasks.images())
    launched = {source: _launched(source, contents.by_name[source], each, targets) for source, each in named.items()}
    text = source(package, contents, Symbols(kernels, images, natives, hosts, launched))
    with tempfile.TemporaryDirectory(prefix="opsmith-library-") as scratch:
        registry = Path(scratch, "registry.cpp")
        registry.write_text(text)
        path = build_library(
            Recipe(
                f"lib{package}",
                (registry, NATIVE / "library.cpp", *objects, *linked),
                targets=tuple(targets) if any(each.has_cuda for each in _used(contents)) else (),
                cflags=tuple(flags),
                system_dirs=(NATIVE, INCLUDE_DIRECTORY),
                label=label,
            )
        )
    return Library(path, tasks.count)


# --- generated kernels ------------------------------------------------------------------------------------------------


def _sources_on_cpu(contents: Contents) -> list[tuple[str, Source]]:
    programs = [program for entry in contents.entries.values() for program in entry.programs.values()]
    leveled = [sources for program in programs for sources in program.on_cpu.values()]
    return list(dict.fromkeys(each for held in (*leveled, *contents.combines_on_cpu.values()) for each in held.items()))


def _sources_on_gpu(contents: Contents) -> list[Source]:
    programs = [program for entry in contents.entries.values() for program in entry.programs.values()]
    own = [kernel.source for program in programs for kernel in program.on_gpu.values()]
    return list(dict.fromkeys([*own, *contents.combines_on_gpu.values()]))


class _Tasks:
    """The tasks that compile something, each once, and the symbols of their results."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._tasks: dict[str, Task] = {}
        self._levels: dict[str, list[str]] = {}
        self._images: dict[str, bool] = {}  # whether it is PTX
        self._built: dict[str, Path] = {}

    @property
    def count(self) -> int:
        return len(self._tasks)

    def kernel(self, level: str, kernel: Source) -> str:
        with emit_cpp.written_for(level):
            flags = [*emit_cpp.flags(), f"-D{kernel.entry}={(symbol := _symbol('kernel', level, *kernel))}"]
        self._tasks[symbol] = functools.partial(
            compile_text, kernel.text, flags=flags, include_dirs=[INCLUDE_DIRECTORY], label=kernel.entry
        )
        self._levels.setdefault(level, []).append(symbol)
        return symbol

    def image(self, kernel: Source, target: str) -> tuple[str, str]:
        """The symbol of a kernel's binary, and what it runs on."""
        symbol = _symbol("image", target, *kernel)
        self._tasks[symbol] = functools.partial(compile_cuda, kernel.text, kernel.entry, target)
        self._images[symbol] = target.startswith("compute_")
        return symbol, target

    def unit(self, source: CudaSource, name: str, target: str) -> tuple[str, str]:
        """The symbol of the binary with a kernel of a CudaSource, and what it runs on."""
        unit = source._current().unit(name)
        symbol = _symbol("image", target, source._current().fingerprint, repr(source._given[1:]), str(unit))
        self._tasks[symbol] = lambda: source._build_for(name if unit else None, target).path
        self._images[symbol] = target.startswith("compute_")
        return symbol, target

    def run(self, advance: Callable[[int, int], None]) -> None:
        finished = 0

        def task(symbol: str, build: Task) -> None:
            nonlocal finished
            self._built[symbol] = build()
            finished += 1
            advance(finished, len(self._tasks))

        if self._tasks:
            run_together([functools.partial(task, *each) for each in self._tasks.items()], max_jobs())

    def level(self, name: str) -> Path:
        symbols = sorted(self._levels[name])
        objects = [self._built[symbol] for symbol in symbols]
        return merged(f"kernels_{name}", objects, {symbol: symbol for symbol in symbols}, self._label)

    def images(self) -> Path:
        """An object with the binaries, each after its symbol. PTX is text and ends with a zero byte."""
        files = {symbol: self._built[symbol] for symbol in sorted(self._images)}
        lines = [".section .rodata"]
        for symbol in files:
            lines += [".balign 64", f".globl {symbol}", f".hidden {symbol}", f'{symbol}: .incbin "{symbol}"', ".byte 0"]
        return assemble("\n".join([*lines, '.section .note.GNU-stack,"",%progbits', ""]), files, self._label)


def _symbol(kind: str, *parts: str) -> str:
    return f"opsmith_{kind}_{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:20]}"


# --- extensions -------------------------------------------------------------------------------------------------------


def _used(contents: Contents) -> list[Extension]:
    natives = [native for entry in contents.entries.values() for native in entry.natives]
    return list({native.function.extension.name: native.function.extension for native in natives}.values())


def _extensions(
    contents: Contents, targets: Sequence[str]
) -> tuple[dict[tuple[str, str, str | None], str], dict[str, CudaSource | None], list[Path], list[str]]:
    """The symbols of the extensions' functions, the symbols of the functions that receive the kernels of host code, the
    objects, and the linker's flags."""
    natives = [native.function for entry in contents.entries.values() for native in entry.natives]
    symbols: dict[tuple[str, str, str | None], str] = {}
    hosts: dict[str, CudaSource | None] = {}
    objects: list[Path] = []
    flags: list[str] = []
    for extension in _used(contents):
        recipe = extension.recipe(targets)
        functions = sorted({each.symbol for each in natives if each.extension is extension})
        for level in levels_of(recipe):
            own = {function: _symbol("native", extension.name, function, str(level)) for function in functions}
            symbols.update({(extension.name, function, level): symbol for function, symbol in own.items()})
            hosts[host := _symbol("host", extension.name, str(level))] = extension.kernels
            built = build_objects(for_level(recipe, level))
            exported = {**own, SET_HOST: host}
            objects.append(merged(f"{extension.name}_{level or 'any'}", built, exported, recipe.label))
        flags += library_flags(recipe)
    return symbols, hosts, objects, list(dict.fromkeys(flags))


def _launched(
    source: CudaSource,
    names: Mapping[str, str],
    images: Mapping[str, Sequence[tuple[str, str]]],
    targets: Sequence[str],
) -> list[NamedKernel]:
    """The kernels that C++ launches by name, with what their parameters take."""
    found = []
    for spelling, name in names.items():
        unit = source._current().unit(name)
        built = source._build_for(name if unit else None, targets[0])
        plan = built.plan(name)
        rows = [parameter_row(each) for each in plan.parameters]
        found.append(NamedKernel(spelling, plan.declared(), built.symbol(name), rows, images[spelling]))
    return found
