"""`opsmith cache`: where, how large, and gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opsmith import toolchain

from .conftest import Invoke, flat


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with one build in it, 1000 bytes large."""

    def build(workdir: Path) -> None:
        (workdir / "artifact").write_bytes(b"x" * 1000)

    toolchain.obtain("k" * 64, build, label="a test", filenames=["artifact"])
    return tmp_path / "cache"


def test_where_it_is_and_how_large(invoke: Invoke, cache: Path) -> None:
    result = invoke("cache")
    assert result.exit_code == 0, result.output
    assert flat(result.output).startswith(f"{cache} 1 build, 1.")
    assert "KiB" in result.output
    assert "OPSMITH_CACHE_DIR" in result.output


def test_json_gives_the_same_facts(invoke: Invoke, cache: Path) -> None:
    facts = json.loads(invoke("cache", "--json", "-").stdout)
    assert facts.pop("bytes") > 1000
    assert facts == {"directory": str(cache), "builds": 1, "cleared": False}


def test_clear_removes_every_build(invoke: Invoke, cache: Path) -> None:
    result = invoke("cache", "--clear")
    assert result.exit_code == 0, result.output
    assert flat(result.output).startswith("Removed 1 build, 1.")
    assert list((cache / "artifacts").iterdir()) == []
    assert json.loads(invoke("cache", "--json", "-").stdout)["builds"] == 0


def test_a_cache_that_is_not_there_is_an_empty_one(invoke: Invoke, tmp_path: Path) -> None:
    for arguments in (("cache",), ("cache", "--clear")):
        result = invoke(*arguments)
        assert result.exit_code == 0, result.output
        assert "0 builds" in result.output
    assert not (tmp_path / "cache").exists()


def test_a_cache_that_others_can_write_is_not_touched(invoke: Invoke, cache: Path) -> None:
    cache.chmod(0o777)
    result = invoke("cache", "--clear")
    assert result.exit_code == 1
    assert result.output.startswith("error: The cache directory")
    assert f"chmod 700 {cache}" in result.output
    assert "Traceback" not in result.output
