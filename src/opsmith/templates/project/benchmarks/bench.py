"""How fast my_op is, compared with PyTorch, torch.compile and the limit of this machine.

    python benchmarks/bench.py      # on the GPU where there is one

`opsmith bench` has more options: --json rows.json keeps the rows, and `opsmith report rows.json` shows them as a page.
"""

import opsmith

from my_package.ops.my_op import my_op


def main() -> None:
    for row in opsmith.bench(my_op).rows:
        call = f"{row['sample']:12} {row['dtype']:9} {row['direction']:9}"
        print(f"{call} {row['contender']:8} {row['us']:9.1f} us")


if __name__ == "__main__":
    main()
