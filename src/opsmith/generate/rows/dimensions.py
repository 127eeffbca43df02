"""Which dimensions of a row program's tensors are the same dimension of the full shape, determined while it is traced.

Every dimension belongs to a class, or has size one. A call that broadcasts tensors joins the classes of dimensions at
the same position, counted from the last; a reduction removes dimensions. In the end, the ordered classes are the full
shape, and every tensor has all of them (Form.FULL), or those that are not along the row (Form.SQUEEZED).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from ...errors import SourceLine
from ..expression import Form, Interner, Node, Scalar


class Unaligned(Exception):
    """A call is not a function of rows; the message says why."""


class Dimension(NamedTuple):
    """A dimension of a value: its class, None if it has size one, and the slots of the tensors that give it its
    size."""

    kind: int | None
    slots: frozenset[int]


ONE = Dimension(None, frozenset())
Place = tuple[Dimension, ...]


class Covers(NamedTuple):
    """Slots that must together have the full size along these dimensions, counted from the last; None: along all."""

    dimensions: tuple[int, ...] | None
    slots: frozenset[int]


class Broadcasting:
    """As Dimensions, for a pointwise program, where every tensor broadcasts to the full shape: a place is the set of
    slots that determine its shape."""

    def tensor(self, slot: int, rank: int) -> frozenset[int]:
        return frozenset([slot])

    def broadcast(self, places: Iterable[frozenset[int]]) -> frozenset[int]:
        return frozenset().union(*places)

    def covers(self, place: frozenset[int]) -> list[Covers]:
        return [Covers(None, place)]


class Dimensions:
    def __init__(self) -> None:
        self._parents: list[int] = []
        self._reduced: list[tuple[frozenset[int], SourceLine | None]] = []
        self._places: list[Place] = []
        self._counted: list[Dimension] = []  # along which a program numbers the elements
        self.sizes: dict[Node, Dimension] = {}
        self.checks: list[Node] = []  # of indices
        self.operands: list[Place] = []
        """Of reductions: each must have the whole row, otherwise a broadcast element is counted several times."""
        self.counts_from_the_first = False
        """Whether a dimension was given as 0, 1, ..., which depends on how many there are."""

    def tensor(self, slot: int, rank: int) -> Place:
        """The place of an input."""
        first = len(self._parents)
        self._parents += range(first, first + rank)
        return tuple(Dimension(first + d, frozenset([slot])) for d in range(rank))

    def broadcast(self, places: Iterable[Place]) -> Place:
        joined: list[Dimension] = []
        for place in places:
            self._noted(place)
            joined[:0] = [ONE] * (len(place) - len(joined))
            for d, (kind, slots) in enumerate(reversed(place), start=1):
                other = joined[-d]
                if kind is not None and other.kind is not None:
                    self._join(kind, other.kind)
                joined[-d] = Dimension(other.kind if kind is None else kind, other.slots | slots)
        return self._noted(tuple(joined))

    def number(self, place: Place, dimension: int, added: int = 0) -> int:
        """A dimension as an index into a place that gets `added` more dimensions."""
        rank = len(place) + added
        if not -rank <= dimension < max(rank, 1):
            raise Unaligned(f"it has no dimension {dimension}")
        if dimension >= 0:
            self.counts_from_the_first = True
        return dimension % rank if rank else 0

    def reduce(self, place: Place, dimensions: Sequence[int], keepdim: bool, line: SourceLine | None) -> Place:
        numbers = [self.number(place, d) for d in dimensions]
        kinds = [self._noted(place)[number].kind for number in numbers]
        if any(kind is None for kind in kinds):
            raise Unaligned("it reduces a dimension that has been reduced before")
        self.operands.append(tuple(place[number] for number in numbers))
        self._reduced.append((frozenset(kind for kind in kinds if kind is not None), line))
        kept = [ONE if d in numbers else each for d, each in enumerate(place) if keepdim or d not in numbers]
        return self._noted(tuple(kept))

    def unsqueeze(self, place: Place, dimension: int) -> Place:
        number = self.number(self._noted(place), dimension, added=1)
        return self._noted((*place[:number], ONE, *place[number:]))

    def squeeze(self, place: Place, dimension: int) -> Place:
        number = self.number(self._noted(place), dimension)
        if place[number].kind is not None:
            raise Unaligned(f"dimension {dimension} does not always have size one")
        return self._noted((*place[:number], *place[number + 1 :]))

    def size(self, interner: Interner, place: Place, dimension: int) -> Scalar:
        """The size of a dimension. `frame` finds out which dimension of the full shape it is."""
        found = self._noted(place)[self.number(place, dimension)]
        if found.kind is None:
            raise Unaligned(f"dimension {dimension} has size one")
        node = interner.scalar(f"size of {found.kind}", -1, torch.int64)
        self.sizes[node] = found
        return node

    def columns(self, size: Node) -> Place:
        """The place of the numbers from 0 to a size."""
        if size not in self.sizes:
            raise Unaligned("it counts to something that is not the size of a row")
        self._counted.append(self.sizes[size])
        return self._noted((self.sizes[size],))

    def gather(self, place: Place, dimension: int, index: Place, line: SourceLine | None) -> Place:
        number = self.number(place, dimension)
        if len(index) != len(place) or index[number].kind is not None:
            raise Unaligned("it gathers several elements of a row (use one index per row: index[..., None])")
        self.broadcast([(*place[:number], ONE, *place[number + 1 :]), index])
        self._counted.append(place[number])
        self.reduce(place, [dimension], True, line)
        return index

    def _noted(self, place: Place) -> Place:
        self._places.append(place)
        return place

    # --- classes -------------------------------------------------------------------------------------------------

    def _root(self, kind: int) -> int:
        while self._parents[kind] != kind:
            kind = self._parents[kind]
        return kind

    def _join(self, first: int, second: int) -> None:
        self._parents[self._root(first)] = self._root(second)

    def _kinds(self, place: Place) -> list[int]:
        return [self._root(kind) for kind, _ in place if kind is not None]

    # --- in the end ----------------------------------------------------------------------------------------------

    def frame(self) -> Frame:
        """The full shape, once every call has been seen."""
        order = self._order()
        if not self._reduced:
            raise Unaligned("it reduces no dimension: declare it with @opsmith.pointwise")
        along = [{self._root(kind) for kind in kinds} for kinds, _ in self._reduced]
        for rows, (_, line) in zip(along, self._reduced, strict=True):
            if rows != along[0]:
                first, second = (self._shown(order, each) for each in (along[0], rows))
                where = f" in {line}" if line else ""
                raise Unaligned(
                    f"it reduces dimension {first} first and {second} later{where}, and a program has one kind of row"
                )
        dimensions = tuple(d - len(order) for d, kind in enumerate(order) if kind in along[0])
        if any({self._root(each.kind)} != along[0] for each in self._counted if each.kind is not None):
            raise Unaligned("it numbers elements along a dimension that is not the whole row")
        return Frame(self, order, dimensions)

    def _shown(self, order: list[int], kinds: set[int]) -> str:
        return " and ".join(str(d - len(order)) for d, kind in enumerate(order) if kind in kinds)

    def _order(self) -> list[int]:
        """All classes, in the order that they have in every place."""
        before: dict[int, set[int]] = {}
        for place in self._places:
            kinds = self._kinds(place)
            if len(set(kinds)) != len(kinds):
                raise Unaligned(
                    "it aligns one dimension with another of the same tensor (keepdim=True, or [..., None], keeps a "
                    "reduced dimension in its place)"
                )
            for number, kind in enumerate(kinds):
                before.setdefault(kind, set()).update(kinds[:number])
        order: list[int] = []
        while len(order) < len(before):
            ready = [kind for kind, earlier in before.items() if kind not in order and earlier <= set(order)]
            if len(ready) != 1:
                raise Unaligned("its tensors have no common shape")
            order.append(ready[0])
        return order


class Frame:
    """The full shape of a row program. `rows`: the dimensions along the row."""

    def __init__(self, of: Dimensions, order: list[int], rows: tuple[int, ...]) -> None:
        self._of, self._order, self.rows = of, order, rows

    def dimension(self, dimension: Dimension) -> int:
        """Counted from the last."""
        assert dimension.kind is not None
        return self._order.index(self._of._root(dimension.kind)) - len(self._order)

    @property
    def _kept(self) -> list[int]:
        return [kind for d, kind in enumerate(self._order) if d - len(self._order) not in self.rows]

    def form_of_input(self, place: Place) -> Form:
        kinds = self._of._kinds(place)
        if not place:
            return Form.SQUEEZED  # one value for every row
        if not set(kinds) & set(self._order):  # not used
            return Form.FULL
        if kinds == self._order[-len(kinds) :]:
            return Form.FULL
        if kinds == self._kept[-len(kinds) :]:
            return Form.SQUEEZED
        raise Unaligned(
            "an input's dimensions are neither those of the full shape nor those that are not along the row"
        )

    def form_of_result(self, place: Place) -> Form:
        kinds = self._of._kinds(place)
        if kinds == self._order and len(place) == len(kinds):
            return Form.FULL
        if kinds == self._kept:
            if len(place) == len(kinds):
                return Form.SQUEEZED
            ones = [d - len(place) for d, (kind, _) in enumerate(place) if kind is None]
            if ones == list(self.rows):
                return Form.KEPT
        raise Unaligned("a result has neither the full shape nor one value per row")

    def covers(self, place: Place) -> list[Covers]:
        """What must hold for a value in this place to have the full size in each of its dimensions."""
        by_slots: dict[frozenset[int], list[int]] = {}
        for each in place:
            if each.kind is not None:
                by_slots.setdefault(each.slots, []).append(self.dimension(each))
        return [Covers(tuple(sorted(found)), slots) for slots, found in by_slots.items()]

    def covers_sizes(self) -> list[Covers]:
        return [Covers((self.dimension(each),), each.slots) for each in self._of.sizes.values()]
