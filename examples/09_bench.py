"""How fast is this op? Timed beside eager PyTorch, held against the machine's limit, kept, compared and shown."""

import tempfile
from pathlib import Path

import torch

import opsmith
from opsmith.benchmark import Results, regressions
from opsmith.benchmark.report import page


# [op]
@opsmith.pointwise("examples::bias_gelu")
def bias_gelu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x + bias, approximate="tanh")


@bias_gelu.register_samples
def _(device, dtype):
    for rows in (64, 1024):
        x = torch.randn(rows, 256, device=device, dtype=dtype)
        yield opsmith.Sample(args=(x, torch.randn(256, device=device, dtype=dtype)), name=f"{rows}x256")


@bias_gelu.register_cost
def _(x, bias):  # the least that a call must do: x and bias read, the result written; ten operations per element
    return opsmith.Cost(bytes=2 * x.nbytes + bias.nbytes, flops=10 * x.numel())


# [op]


def main() -> None:
    # [bench]
    results = opsmith.bench(bias_gelu, device="cpu", against=["eager"], direction="forward")
    for row in results.rows:
        print(row["sample"], row["contender"], f"{row['us']:.1f} us, {row['share']:.0%} of the {row['limit']} limit")
    # [bench]

    with tempfile.TemporaryDirectory() as folder:
        # [compare]
        file = Path(folder) / "rows.json"
        results.save(file)
        slower = regressions(Results.load(file), results, ["opsmith"])  # before, now: beyond what noise explains
        print(len(slower), "slower than before")
        # [compare]

        # [report]
        text = page([("rows.json", results)])
        (Path(folder) / "report.html").write_text(text, encoding="utf-8")
        # [report]
        print("a page of its own:", "bias_gelu" in text and "<canvas" in text)


if __name__ == "__main__":
    main()
