"""What a CUDA source has at file scope, read off its text: kernels, their parameters' names, constants, variables.

This is a light reading, for names and messages. Types are the compiler's business (signature.py), and so is what it
makes of macros and #if: a kernel listed here may turn out not to be there, and then says so when it is compiled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

_COMMENT_OR_LITERAL = re.compile(
    r"//(?:\\\n|[^\n])*"
    r"|/\*.*?(?:\*/|\Z)"
    r'|R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'",  # an apostrophe within a number parts its digits
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
_TOKEN = re.compile(r"[A-Za-z_]\w*|::|\.\.\.|\d[\w.]*|[^\s\w]")
_OPEN, _CLOSE = {"(": ")", "{": "}", "[": "]"}, {")", "}", "]"}

# What may stand before brackets without being a function's name.
_NOT_NAMES = {
    "__launch_bounds__", "__cluster_dims__", "__block_size__", "__maxnreg__", "__align__", "__attribute__",
    "__declspec", "alignas", "decltype", "noexcept", "requires", "sizeof", "alignof", "explicit",
}  # fmt: skip
_QUALIFIERS = {
    "const", "volatile", "__restrict__", "__restrict", "restrict", "struct", "class", "enum", "union", "typename",
    "__grid_constant__", "register",
}  # fmt: skip
_BUILTIN = {
    "void", "bool", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "auto", "wchar_t",
    "char8_t", "char16_t", "char32_t", "__int128",
}  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """A parameter as its author wrote it; `name` is empty where it has none."""

    text: str
    name: str


@dataclass(frozen=True)
class KernelText:
    """A __global__ function as its author wrote it. `template` holds its template's parameters, None without one;
    `launch_bounds` what stands in the brackets of __launch_bounds__, empty without."""

    name: str
    parameters: tuple[Parameter, ...]
    template: tuple[str, ...] | None = None
    launch_bounds: str = ""

    @property
    def example(self) -> str:
        """'scale<float, 4>': how an instance of a template is spelled."""
        if self.template is None:
            return self.name
        return f"{self.name}<{', '.join(map(_example_argument, self.template))}>"


@dataclass
class SourceText:
    """Everything found, by qualified name: ns::scale."""

    kernels: dict[str, KernelText] = field(default_factory=dict)
    constants: list[str] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)  # __device__, and not constant: kernels may write them
    words: set[str] = field(default_factory=set)  # every identifier, those in macros too


def declarations_in(texts: Iterable[str]) -> SourceText:
    """What a source and its headers have between them."""
    found = SourceText()
    for text in texts:
        found.words.update(re.findall(r"[A-Za-z_]\w*", text))
        bare = _DIRECTIVE.sub(_spaces, _COMMENT_OR_LITERAL.sub(_spaces, text))
        _Reader(bare, found).read()
    return found


def without_comments(text: str) -> str:
    """The text with spaces in the place of comments; everything else stays where it was."""
    return _COMMENT_OR_LITERAL.sub(
        lambda found: _spaces(found) if found[0].startswith(("//", "/*")) else found[0], text
    )


def _spaces(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


class _Reader:
    """Goes through the declarations at file and namespace scope; the insides of functions and classes are skipped."""

    def __init__(self, text: str, found: SourceText) -> None:
        self.text = text
        self.found = found
        self.tokens = [(match[0], match.start()) for match in _TOKEN.finditer(text)]
        self.scopes: list[tuple[str, ...]] = []

    def read(self) -> None:
        position, start = 0, 0
        while position < len(self.tokens):
            token = self.tokens[position][0]
            head = [each for each, _ in self.tokens[start:position]] if token == "{" else []
            if head and _opens_scope(head):
                self.scopes.append(tuple(part for part in head if part.isidentifier() and part not in _SCOPE_WORDS))
                position = start = position + 1
            elif token == "}":
                if self.scopes:
                    self.scopes.pop()
                position = start = position + 1
            elif token == ";":
                self._declaration(start, position)
                position = start = position + 1
            elif token in _OPEN:
                end = self._closing(position)
                if token == "{" and _is_function(head):
                    self._declaration(start, position)
                    start = end + 1
                position = end + 1
            else:
                position += 1

    def _closing(self, position: int) -> int:
        """Where the bracket at a position closes; the end of the text if it never does."""
        depth = 0
        for index in range(position, len(self.tokens)):
            token = self.tokens[index][0]
            depth += (token in _OPEN) - (token in _CLOSE)
            if depth == 0:
                return index
        return len(self.tokens)

    def _declaration(self, start: int, end: int) -> None:
        words = _without_bodies([token for token, _ in self.tokens[start:end]])
        if not words or words[0] in ("using", "typedef"):
            return
        if "__global__" in words:
            self._kernel(start, [token for token, _ in self.tokens[start:end]])
        elif "__constant__" in words:
            self.found.constants += [self._qualified([name]) for name in _declared(words) if name]
        elif ("__device__" in words or "__managed__" in words) and not _is_function(words):
            if not _is_constant(words):
                self.found.variables += [self._qualified([name]) for name in _declared(words) if name]

    def _kernel(self, start: int, words: list[str]) -> None:
        opening = _parameter_list(words, words.index("__global__"))
        if opening is None or words[opening - 1] == ">":  # `scale<float>(`: an explicit instance of a template
            return
        first = opening - 1
        while first >= 2 and words[first - 1] == "::" and words[first - 2].isidentifier():
            first -= 2
        template = _template_parameters(words)
        if template == ():
            return
        closing = self._closing(start + opening)
        name = self._qualified(words[first:opening:2])
        bounds = self._in_brackets(start, words[:opening], "__launch_bounds__")
        kernel = KernelText(name, tuple(self._parameters(start + opening + 1, closing)), template, bounds)
        known = self.found.kernels.get(name)
        # A kernel may be declared before it is defined; the names of its parameters are in one of the two.
        if known is not None and sum(bool(each.name) for each in known.parameters) >= len(kernel.parameters):
            kernel = known
        self.found.kernels[name] = replace(kernel, launch_bounds=bounds or (known.launch_bounds if known else ""))

    def _in_brackets(self, start: int, words: Sequence[str], name: str) -> str:
        """What stands in the brackets after a word, of the words from a position on."""
        if name not in words:
            return ""
        opening = start + list(words).index(name) + 1
        return self.text[self.tokens[opening][1] + 1 : self.tokens[self._closing(opening)][1]].strip()

    def _parameters(self, start: int, end: int) -> Iterable[Parameter]:
        for first, last in _split(self.tokens, start, end):
            if first == last:
                continue
            words = [token for token, _ in self.tokens[first:last]]
            if words == ["void"]:
                continue
            stop = self.tokens[last - 1]
            text = self.text[self.tokens[first][1] : stop[1] + len(stop[0])]
            yield Parameter(" ".join(text.split()), _parameter_name(words))

    def _qualified(self, name: Sequence[str]) -> str:
        return "::".join([*(part for scope in self.scopes for part in scope), *name])


_SCOPE_WORDS = {"namespace", "inline", "extern"}


def _opens_scope(head: Sequence[str]) -> bool:
    """`namespace a::b {`, `namespace {`, and `extern "C" {`, whose string is blank here."""
    words = [token for token in head if token != "::"]
    return words[:1] == ["namespace"] or words[:2] == ["inline", "namespace"] or words == ["extern"]


def _without_bodies(words: Sequence[str]) -> list[str]:
    """A declaration without what stands in braces: a class's members, a variable's values."""
    kept, depth = [], 0
    for word in words:
        depth -= word == "}"
        if depth == 0:
            kept.append(word)
        depth += word == "{"
    return kept


def _is_function(words: Sequence[str]) -> bool:
    """Whether a declaration is of a function: it has a name with brackets after it, before any `=`."""
    start = _after_template(words)
    return "operator" in words or _parameter_list(words, start) is not None


def _parameter_list(words: Sequence[str], start: int) -> int | None:
    """Where a function's parameters begin, looked for from `start`."""
    depth = 0
    for index in range(start, len(words)):
        token = words[index]
        if token == "=" and depth == 0:
            return None
        if token == "(" and depth == 0 and index > start:
            before = words[index - 1]
            if before == ">" or (before.isidentifier() and before not in _NOT_NAMES and before not in _BUILTIN):
                return index
        depth += (token in _OPEN) - (token in _CLOSE)
    return None


def _after_template(words: Sequence[str]) -> int:
    """The position after `template <...>`."""
    if words[:2] != ["template", "<"]:
        return 0
    depth = 0
    for index in range(1, len(words)):
        depth += (words[index] == "<") - (words[index] == ">")
        if depth == 0:
            return index + 1
    return len(words)


def _template_parameters(words: Sequence[str]) -> tuple[str, ...] | None:
    """What a template takes; () for a specialisation, None for what is no template."""
    if words[:1] != ["template"]:
        return None
    end = _after_template(words) - 1
    tokens = [(word, 0) for word in words]
    return tuple(" ".join(words[first:last]) for first, last in _split(tokens, 2, end) if first < last)


def _split(tokens: Sequence[tuple[str, int]], start: int, end: int) -> list[tuple[int, int]]:
    """The parts between commas that stand inside no brackets."""
    parts, first, depth, angles = [], start, 0, 0
    for index in range(start, end):
        token = tokens[index][0]
        depth += (token in _OPEN) - (token in _CLOSE)
        angles = max(0, angles + (token == "<") - (token == ">"))  # a `>` that closes nothing compares
        if token == "," and depth == angles == 0:
            parts.append((first, index))
            first = index + 1
    return [*parts, (first, end)]


def _parameter_name(words: Sequence[str]) -> str:
    """The name in `const float* __restrict__ x = nullptr`; empty in `const float*`."""
    ends = [index for index, word in enumerate(words) if word in ("=", "[")]
    words = words[: ends[0]] if ends else words
    if not words or not words[-1].isidentifier() or words[-1] in _QUALIFIERS or words[-1] in _BUILTIN:
        return ""
    if words[-2:-1] == ["::"] or not any(word not in _QUALIFIERS for word in words[:-1]):
        return ""  # a type alone: cuda::std::size_t, const T
    return words[-1]


def _declared(words: Sequence[str]) -> list[str]:
    """The variables in `__constant__ float a[4], *b = nullptr, c{1}`."""
    tokens = [(word, 0) for word in words]
    names = []
    for first, last in _split(tokens, _after_template(words), len(words)):
        part = words[first:last]
        ends = [index for index, word in enumerate(part) if word in ("=", "[", "{")]
        before = [word for word in (part[: ends[0]] if ends else part) if word.isidentifier()]
        names.append(before[-1] if before else "")
    return names


def _is_constant(words: Sequence[str]) -> bool:
    """Whether nothing can write a variable: constexpr, or const, and of a pointer the pointer itself."""
    if "constexpr" in words or "__shared__" in words:
        return True
    end = next((index for index, word in enumerate(words) if word in ("=", "{", "[")), len(words))
    stars = [index for index, word in enumerate(words[:end]) if word == "*"]
    return "const" in words[(stars[-1] + 1 if stars else 0) : end]


def _example_argument(parameter: str) -> str:
    """Something a template parameter may take, to show how an instance is spelled."""
    words = parameter.split()
    if words[0] in ("typename", "class"):
        return "float"
    return "true" if words[0] == "bool" else "4" if words[0] in _BUILTIN or words[0].endswith("_t") else words[-1]
