"""How fast my_op is, beside the same in eager PyTorch and torch.compile, and against the limit of this machine.

    python benchmarks/bench.py          # on the GPU where there is one

`opsmith bench my_package::my_op --from my_package --json rows.json` has more options, and `opsmith report rows.json` shows rows as a page.
"""

import opsmith
from my_package.ops.my_op import my_op


def main() -> None:
    for row in opsmith.bench(my_op).rows:
        print(row)


if __name__ == "__main__":
    main()
