"""What a thread on a GPU has in registers of a row: elements as they are loaded, and what passes carry on."""

from __future__ import annotations

from ..expression import Form, Program
from ..text import computed_in
from ..tuning import cost_of
from .passes import Pass, schedule


def carried_bytes(program: Program) -> int:
    """Bytes of an element that a thread needs besides its inputs: values that passes carry on. Where a pass is the last
    to use an input, they take its place."""
    rows = program.rows
    assert rows is not None
    forms = [result.like if isinstance(result.like, Form) else rows.forms[result.like] for result in program.results]
    modes = ["strided1" if form is Form.FULL else "row" for form in forms]
    passes = schedule(program, modes, cost_of, on_gpu=True).passes
    itemsizes = {read.slot: read.dtype.itemsize for read in program.reads}

    def loaded(passes: list[Pass]) -> int:
        return sum(itemsizes[slot] for slot in {node.slot for each in passes for node in each.loads})

    inputs = loaded(passes)
    most = inputs
    for number in range(1, len(passes)):
        before = {node for each in passes[:number] for node in each.carried_out}
        after = {node for each in passes[number:] for node in each.carried_in}
        carried = sum(computed_in(node.dtype).itemsize for node in before & after)
        most = max(most, loaded(passes[number:]) + carried)
    return most - inputs
