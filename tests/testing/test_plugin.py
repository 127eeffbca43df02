"""The pytest plug-in: light, loaded once, and its fixture."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import opsmith
from opsmith.kernels.emulation import Settings, state

PLUGIN = "opsmith.testing.plugin"
SOURCE = str(Path(opsmith.__file__).parents[1])

IMPORT = f"""
import json, sys, time
import pytest
before = set(sys.modules)
start = time.perf_counter()
import {PLUGIN}
print(json.dumps({{"seconds": time.perf_counter() - start, "modules": sorted(set(sys.modules) - before)}}))
"""


def test_a_pytest_run_that_does_not_use_the_plugin_imports_nothing_more() -> None:
    """Five modules of opsmith's own, some milliseconds; neither torch nor anything else."""
    runs = []
    for _ in range(3):
        environment = {**os.environ, "PYTHONPATH": SOURCE}
        done = subprocess.run(
            [sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True, env=environment
        )
        runs.append(json.loads(done.stdout))
    assert {name.partition(".")[0] for name in runs[0]["modules"]} == {"opsmith"}
    assert len(runs[0]["modules"]) <= 6
    assert statistics.median(run["seconds"] for run in runs) < 0.1


@pytest.mark.parametrize("named", ["by its entry point", "by conftest", "on the command line"])
def test_the_plugin_is_loaded_once_however_it_is_named(named: str, pytester: pytest.Pytester) -> None:
    if named == "by its entry point" and not _is_installed():
        pytest.skip("opsmith is not installed here but found by PYTHONPATH")
    if named == "by conftest":
        pytester.makeconftest(f"pytest_plugins = [{PLUGIN!r}]")
    pytester.makepyfile(
        test_mine=f"""
        def test_mine(pytestconfig):
            plugins = pytestconfig.pluginmanager.list_name_plugin()
            assert [name for name, plugin in plugins if getattr(plugin, "__name__", "") == {PLUGIN!r}] == [{PLUGIN!r}]
        """
    )
    arguments = ["-p", PLUGIN] if named == "on the command line" else []
    done = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--fixtures", *arguments)
    done.stdout.fnmatch_lines(["opsmith_emulate -- *"])
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:hypothesispytest", *arguments).assert_outcomes(
        passed=1
    )


def _is_installed() -> bool:
    from importlib.metadata import entry_points

    return any(found.name == PLUGIN for found in entry_points(group="pytest11"))


def test_the_fixture_runs_cuda_kernels(opsmith_emulate: Settings) -> None:
    assert opsmith_emulate == Settings(checks=True, seed=0)
    assert state.active
    x = torch.randn(100)
    torch.testing.assert_close(opsmith.ops.square(x), x * x)


seeds: list[int | None] = []


@pytest.mark.parametrize("opsmith_emulate", [0, 7, None], indirect=True)
def test_seeds_are_given_by_parametrize(opsmith_emulate: Settings) -> None:
    seeds.append(opsmith_emulate.seed)
    assert state.settings is opsmith_emulate


def test_emulation_ends_with_the_test() -> None:
    assert seeds in ([0, 7, None], []), "nothing where another process ran them"
    assert not state.active


def test_an_out_of_bounds_access_fails_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_mine="""
        import torch, opsmith

        source = opsmith.cuda_source('''
        extern "C" __global__ void add_one(float* x, long n) {
            long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
            if (i <= n) x[i] += 1;
        }
        ''')

        def test_mine(opsmith_emulate):
            source.add_one[1, 64](torch.zeros(10), 10)
        """
    )
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", PLUGIN)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*KernelFault:*out of bounds*"])


def test_an_invalid_seed_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_mine="""
        import pytest

        @pytest.mark.parametrize("opsmith_emulate", ["first"], indirect=True)
        def test_mine(opsmith_emulate): ...
        """
    )
    done = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", PLUGIN)
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*takes a seed, a number or None, not 'first'*"])
