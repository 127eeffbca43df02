"""Facts about a source that rules use."""

from __future__ import annotations

from opsmith.lint.source import Source


def test_constants_are_known_by_their_bits() -> None:
    source = Source(
        "#define A 16\n#define B (4 * 32)\n#define C 1.5f\n#define D 8L\n#define E f(1)\n"
        "constexpr int kF = 4;\nstatic constexpr int64_t kG = 5;\nvoid f() { constexpr int kH = 1; }"
    )
    assert source.constants == {"A": 32, "B": 32, "D": 64, "kF": 32, "kG": 64}
