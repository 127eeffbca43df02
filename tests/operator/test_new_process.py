"""Schemas are registered when an op is declared: a saved program and a warm compile cache find them in a new process.

Neither process below calls the op before torch looks its schema up by name.
"""

from __future__ import annotations

import json
from pathlib import Path

import fresh_process
import pytest

OPS = """
import torch, opsmith

@opsmith.pointwise("in_new_process::softcap")
def softcap(x: torch.Tensor, cap: float = 2.0) -> torch.Tensor:
    return torch.tanh(x / cap) * cap

@opsmith.op("in_new_process::shift_rows")
def shift_rows(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.roll(x, 1, 0) * weight

shift_rows.register_kernel("cpu", lambda x, weight: torch.roll(x, 1, 0) * weight, name="named")

class Model(torch.nn.Module):
    def forward(self, x, weight):
        with shift_rows.using("named"):
            return softcap(shift_rows(x, weight), cap=3.0)

def arguments():
    torch.manual_seed(0)
    return torch.randn(4, 5), torch.randn(5)

def expected():
    x, weight = arguments()
    return softcap.reference(shift_rows.reference(x, weight), cap=3.0)
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    (tmp_path / "declared_ops.py").write_text(OPS)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))

    def run(code: str) -> dict[str, object]:
        script = f"import json, sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom declared_ops import *\n{code}"
        done = fresh_process.run(["-c", script], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run


def test_a_saved_program_loads_where_the_op_is_only_declared(run) -> None:  # type: ignore[no-untyped-def]
    run("torch.export.save(torch.export.export(Model(), arguments()), 'program.pt2'); print('{}')")
    found = run(
        "program = torch.export.load('program.pt2')\n"
        "close = torch.allclose(program.module()(*arguments()), expected())\n"
        "print(json.dumps({'close': close, 'graph': str(program.graph)}))"
    )
    assert found["close"]
    assert "in_new_process.softcap" in str(found["graph"]) and "in_new_process.shift_rows__named" in str(found["graph"])


def test_a_compile_cache_hit_needs_no_earlier_call(run) -> None:  # type: ignore[no-untyped-def]
    compiled = (
        "from torch._dynamo.utils import counters\n"
        "close = torch.allclose(torch.compile(Model())(*arguments()), expected())\n"
        "inductor = counters['inductor']\n"
        "print(json.dumps({'close': close, 'hits': inductor['fxgraph_cache_hit'],"
        " 'misses': inductor['fxgraph_cache_miss']}))"
    )
    first, second = run(compiled), run(compiled)
    assert first["close"] and second["close"]
    assert first["misses"] and not first["hits"]
    assert second["hits"] == first["misses"] and not second["misses"]
