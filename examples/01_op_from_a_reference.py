"""An operator from a reference alone.

Write a plain PyTorch function; opsmith makes a complete operator of it: gradients of first and second order,
forward-mode AD, vmap, fake tensors, torch.compile and torch.export. Nothing is compiled, and no kernel is needed yet.
"""

# [op]
import torch

import opsmith


@opsmith.op("examples::mish")
def mish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tanh(torch.nn.functional.softplus(x))


# [op]


@mish.register_samples
def _(device: torch.device, dtype: torch.dtype):
    yield opsmith.Sample(args=(torch.randn(1024, device=device, dtype=dtype),), name="1024")
    yield opsmith.Sample(args=(torch.randn(16, 64, device=device, dtype=dtype).t(),), name="transposed")


def main() -> None:
    # [use]
    x = torch.randn(5, requires_grad=True)
    mish(x).sum().backward()  # a gradient
    hessian = torch.func.hessian(lambda v: mish(v).sum())(x.detach())  # and one of second order
    batched = torch.vmap(mish)(torch.randn(8, 5))  # over a batch
    compiled = torch.compile(lambda v: mish(v) + 1, fullgraph=True, backend="aot_eager")  # one node in the graph
    # [use]
    print("gradient       ", [round(value, 4) for value in x.grad.tolist()])
    print("second gradient", [round(value, 4) for value in hessian.diagonal().tolist()])
    print("batched        ", tuple(batched.shape))
    print("compiled       ", torch.equal(compiled(x), mish(x) + 1))

    # [check]
    from opsmith.checks import compare_samples

    for comparison in compare_samples(mish):  # the op against its reference: results and gradients
        print(f"{'ok' if comparison else 'WRONG':5} {comparison.what}")
    # [check]

    print(mish)  # what is written, derived or absent, part by part


if __name__ == "__main__":
    main()
