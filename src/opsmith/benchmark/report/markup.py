"""Text in HTML: the template escapes it, except data and scripts, which cannot end their own element."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup


def json_text(value: Any) -> Markup:
    """JSON for a script element. Neither </script> nor <!-- can be in it: < > & are written as escapes."""
    text = json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def closed(text: str) -> Markup:
    """A file of this package for a script element that runs; it has </script> only inside strings."""
    return Markup(text.replace("</script", r"<\/script").replace("<!--", r"<\!--"))


def _finite(value: Any) -> Any:
    """JSON has neither NaN nor infinity."""
    if isinstance(value, dict):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
TEMPLATES.filters["json"] = json_text
