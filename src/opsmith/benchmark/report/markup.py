"""HTML from Python: text that is not Html is escaped, and data cannot end its script element."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable
from typing import Any

VOID = ("br", "hr", "input", "link", "meta")


class Html(str):
    """Markup, not text: it is not escaped again."""


Child = str | int | Iterable["Child"] | None


def tag(name: str, /, *children: Child, **attributes: str | int | bool | None) -> Html:
    """tag("td", "1 < 2", class_="number") -> <td class="number">1 &lt; 2</td>. An attribute that is None or False is
    left out; a trailing underscore is dropped, others become hyphens."""
    parts = [name]
    for key, value in attributes.items():
        attribute = key.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(attribute)
        elif value is not None and value is not False:
            parts.append(f'{attribute}="{html.escape(str(value))}"')
    opening = f"<{' '.join(parts)}>"
    return Html(opening if name in VOID else f"{opening}{join(*children)}</{name}>")


def join(*children: Child) -> Html:
    return Html("".join(_flat(children)))


def _flat(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, Html):
            yield child
        elif isinstance(child, (str, int)):
            yield html.escape(str(child))
        else:
            yield from _flat(child)


def data(value: Any, **attributes: str) -> Html:
    """A script element that holds JSON. Neither </script> nor <!-- can be in it: < > & are written as escapes."""
    text = json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return tag("script", Html(text), type="application/json", **attributes)


def code(text: str) -> Html:
    """A script element that runs. Its text is a file of this package, which has </script> only inside strings."""
    return Html(f"<script>{closed(text)}</script>")


def closed(text: str) -> str:
    return text.replace("</script", r"<\/script").replace("<!--", r"<\!--")


def _finite(value: Any) -> Any:
    """JSON has neither NaN nor infinity."""
    if isinstance(value, dict):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
