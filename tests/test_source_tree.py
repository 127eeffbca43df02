"""What holds for every file of src: its length, and one place for imports that no contract sees."""

from __future__ import annotations

from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src" / "opsmith"
KERNELS = SOURCES / "include"
TEMPLATES = SOURCES / "templates"


def _files(*suffixes: str) -> list[Path]:
    found = [path for path in SOURCES.rglob("*") if path.suffix in suffixes and TEMPLATES not in path.parents]
    assert len(found) > 100
    return found


def test_no_file_has_more_than_500_lines() -> None:
    """But for headers of kernels, which are included whole."""
    paths = [path for path in _files(".py", ".h", ".cpp") if KERNELS not in path.parents]
    long = {str(path.relative_to(SOURCES)): count for path in paths
            if (count := len(path.read_text().splitlines())) > 500}  # fmt: skip
    assert long == {}


def test_modules_are_imported_by_a_computed_name_in_one_place() -> None:
    """import-linter sees no such import."""
    places = [path for path in _files(".py") if "import_module" in path.read_text()]
    assert [path.relative_to(SOURCES) for path in places] == [Path("_lazy.py")]
