"""The text of generated kernels, as last reviewed. OPSMITH_WRITE_GOLDEN=1 writes it again, for a person to
read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from opsmith.generate import emit_cpp

from . import golden_ops

GOLDEN = Path(__file__).parent / "golden"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(("device", "ending"), [("cuda", "cu"), ("cpu", "cpp")])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["mish", "polynomial", "scale_bias_relu"])
def test_the_text_is_as_it_was(
    name: str, dtype: str, device: str, ending: str, direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emit_cpp, "capability", lambda: "AVX2")  # whatever this machine has
    monkeypatch.setattr(emit_cpp, "has_sleef", lambda: True)
    args = golden_ops.arguments(name, DTYPES[dtype])
    text = getattr(golden_ops, name).source(device, *args, backward=direction == "backward")
    path = GOLDEN / f"{name}_{direction}_{dtype}.{ending}"
    if os.environ.get("OPSMITH_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"{path.name} differs: look at it, then OPSMITH_WRITE_GOLDEN=1 make test"


def test_the_text_says_where_it_comes_from() -> None:
    text = golden_ops.mish.source("cuda")
    assert "mish_forward" in text and "golden_ops.py:" in text
    assert (
        "return x * torch.tanh"
        in (Path(__file__).parent / "golden_ops.py")
        .read_text()
        .splitlines()[int(text.split("golden_ops.py:")[-1].split()[0]) - 1]
    )
