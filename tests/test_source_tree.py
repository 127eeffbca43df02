"""What holds for every file of src: its length, no cycle of imports, one place for imports that no contract sees."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_no_modules_import_each_other() -> None:
    """Also inside functions, and within a folder, where the contract of import-linter does not look."""
    grimp = pytest.importorskip("grimp")  # import-linter brings it
    graph = grimp.build_graph("opsmith", exclude_type_checking_imports=True)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    before = 0
    while len(imports) != before:  # without those that import nothing, and those that nothing imports
        before, imported = len(imports), set().union(*imports.values())
        left = {name: above & imports.keys() for name, above in imports.items() if name in imported}
        imports = {name: above for name, above in left.items() if above}
    assert sorted(imports) == []
