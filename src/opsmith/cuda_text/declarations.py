"""What a CUDA source declares at file scope: kernels, their parameters, constants, variables.

For names and messages only. The compiler knows the types, and what becomes of macros and #if: a kernel listed here may
turn out not to exist when it is compiled, and then the message says that it may be inside an #if.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from .code import Code
from .functions import NOT_NAMES, Declaration, scan, signature_in
from .parameters import BUILTIN, Parameter, parameter_in, template_parameters
from .preprocessor import Preprocessed


@dataclass(frozen=True)
class KernelText:
    """A __global__ function as it is written. `template` holds the parameters of its template, None without one;
    `launch_bounds` and `cluster_dims` are the text in the brackets of __launch_bounds__ and __cluster_dims__, ''
    without."""

    name: str
    parameters: tuple[Parameter, ...]
    template: tuple[str, ...] | None = None
    launch_bounds: str = ""
    cluster_dims: str = ""

    @property
    def example(self) -> str:
        """'scale<float, 4>': how an instance of a template is spelled."""
        if self.template is None:
            return self.name
        return f"{self.name}<{', '.join(map(_example_argument, self.template))}>"


@dataclass
class SourceText:
    """What a source and its headers declare, by qualified name: ns::scale."""

    texts: list[str]
    kernels: dict[str, KernelText] = field(default_factory=dict)
    constants: list[str] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)  # __device__, and not constant: kernels may write them

    @cached_property
    def words(self) -> set[str]:
        """Every identifier, those in macros too."""
        return {word for text in self.texts for word in re.findall(r"[A-Za-z_]\w*", text)}


def declarations_in(texts: Iterable[str]) -> SourceText:
    """The declarations of a source and its headers."""
    found = SourceText(list(texts))
    for text in found.texts:
        code = Preprocessed(text, with_dead=True).code
        for declaration in scan(code):
            if not declaration.in_class:
                _add(found, code, declaration)
    return found


def _add(found: SourceText, code: Code, declaration: Declaration) -> None:
    first, last, signature, namespace, _ = declaration
    words = [code.texts[index] for index in code.outside(first, last)]
    if words[:1] in (["using"], ["typedef"]):
        return
    if "__global__" in words:
        _add_kernel(found, code, declaration)
    elif "__constant__" in words:
        found.constants += [f"{namespace}{name}" for name in _variables(code, first, last)]
    elif "__device__" in words or "__managed__" in words:
        if signature is None and signature_in(code, first, last) is None and not _is_constant(words):
            found.variables += [f"{namespace}{name}" for name in _variables(code, first, last)]


def _add_kernel(found: SourceText, code: Code, declaration: Declaration) -> None:
    first, last, signature, namespace, _ = declaration
    signature = signature or signature_in(code, first, last)
    if signature is None or code.at(signature.opening - 1) == ">":  # `scale<float>(`: an instance or specialisation
        return
    template = None
    if code.at(first) == "template":
        template = tuple(code.written(*part) for part in template_parameters(code, first))
        if not template:  # `template void scale(float*);`: an instance
            return
    start = signature.name
    while code.at(start - 1) == "::" and code.is_word(start - 2):
        start -= 2
    name = namespace + code.written(start, signature.name + 1)
    parts = code.split(signature.opening + 1, code.closing(signature.opening))
    parameters = tuple(parameter_in(code, *part) for part in parts if code.texts[slice(*part)] not in ([], ["void"]))
    bounds, dims = (_in_brackets(code, first, last, each) for each in ("__launch_bounds__", "__cluster_dims__"))
    kernel = KernelText(name, parameters, template, bounds, dims)
    # A kernel may be declared before it is defined; one of the two has the names of its parameters.
    known = found.kernels.get(name, kernel)
    is_named = sum(bool(each.name) for each in known.parameters) >= len(parameters)
    found.kernels[name] = replace(
        known if is_named else kernel,
        launch_bounds=kernel.launch_bounds or known.launch_bounds,
        cluster_dims=kernel.cluster_dims or known.cluster_dims,
    )


def _in_brackets(code: Code, first: int, last: int, word: str) -> str:
    index = code.find({word}, first, last)
    return code.written(index + 2, code.closing(index + 1)) if index < last else ""


def _variables(code: Code, first: int, last: int) -> Iterator[str]:
    """The names in `__constant__ float a[4], *b = nullptr, c{1}`."""
    if code.at(first) == "template":
        first = code.template_end(first + 1) + 1
    for begin, end in code.split(first, last):
        end = code.find({"=", "["}, begin, end)
        words = [code.texts[index] for index in code.outside(begin, end, templates=True)]
        names = [word for word in words if word.isidentifier() and word not in NOT_NAMES]
        yield from names[-1:]


def _is_constant(words: list[str]) -> bool:
    """Whether nothing can write a variable: it is constexpr, or const; of a pointer, the pointer itself."""
    if "constexpr" in words or "__shared__" in words:
        return True
    end = next((index for index, word in enumerate(words) if word in ("=", "{", "[")), len(words))
    stars = [index for index, word in enumerate(words[:end]) if word == "*"]
    return "const" in words[(stars[-1] + 1 if stars else 0) : end]


def _example_argument(parameter: str) -> str:
    """An argument that a template parameter may have."""
    words = parameter.split()
    if words[0] in ("typename", "class"):
        return "float"
    return "true" if words[0] == "bool" else "4" if words[0] in BUILTIN or words[0].endswith("_t") else words[-1]
