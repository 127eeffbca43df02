"""What a run of the checklist is asked to do, as it is handed from the supervisor to its worker."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Job:
    """`names` are ops, modules, files, or operators of torch.ops; none of them stands for every shipped op. `reference`
    and `samples` are 'FILE.py:FUNCTION' or 'MODULE:FUNCTION'. Each op is checked once a seed."""

    names: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    reference: str | None = None
    samples: str | None = None
    device: str | None = None
    emulate: bool = False
    level: Literal["quick", "full"] = "quick"
    seeds: tuple[int, ...] = (0,)
    items: tuple[str, ...] | None = None

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Job:
        facts: dict[str, Any] = json.loads(text)  # where tuples have become lists
        for name, value in facts.items():
            facts[name] = tuple(value) if isinstance(value, list) else value
        return cls(**facts)
