"""Is this op correct? The checklist finds a kernel that ignores strides, and checks an operator of another library."""

import torch

import opsmith


# [op]
@opsmith.op("examples::relu_squared")
def relu_squared(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x).square()


@relu_squared.register_kernel("cpu", layout="strided")  # the kernel declares that it accepts any strides
def _(x):
    result = torch.empty(x.shape, dtype=x.dtype)
    memory = x.as_strided((x.numel(),), (1,))  # wrong: reads x as if it were contiguous
    result.view(-1).copy_(torch.relu(memory).square())
    return result


@relu_squared.register_samples
def _(device, dtype):
    yield opsmith.Sample(args=(torch.randn(16, 8, device=device, dtype=dtype),), name="16x8")


# [op]


def halve(x):
    return x / 2


def main() -> None:
    # [passes]
    x = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(torch.ops.examples.relu_squared, (x,))  # torch's own checks find nothing
    torch.autograd.gradcheck(relu_squared, (x,))
    # [passes]

    # [check]
    report = opsmith.check(relu_squared, device="cpu", items=["values", "gradients", "input_layouts"])
    for item in report.items:
        print(item.status, item.name, item.message)
    (failed,) = report.failures
    print(failed.reproduction)  # Python to copy and run
    # [check]

    library = torch.library.Library("examples", "FRAGMENT")  # in C++: what torch.ops.load_library loads
    library.define("halve(Tensor x) -> Tensor")
    library.impl("halve", lambda x: x * 0.5, "CompositeImplicitAutograd")
    # [adopt]
    adopted = opsmith.checks.adopt(torch.ops.examples.halve, halve)
    print(opsmith.check(adopted, device="cpu", items=["values", "gradients"]))
    # [adopt]


if __name__ == "__main__":
    main()
