"""Plain data as JSON, with integers of any size: a state may hold a mask of a batch, or a count that overflowed.

orjson is quick and stops at 64 bits: it refuses to write a larger integer, and reads one as a rounded number. Such
data, which is rare, takes the standard library's way.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

#: What reading may raise; its fields `msg` and `colno` say what is wrong and where.
NotJSON = json.JSONDecodeError

#: So many digits in a row may be an integer that 64 bits do not hold.
_MANY_DIGITS = re.compile(rb"[0-9]{19}")


def to_json(data: Any, *, indent: bool = False) -> bytes:
    """Plain data as UTF-8. Cost: that of orjson, and once more that of the standard library for large integers.

    Raises TypeError or ValueError for what is not plain.
    """
    try:
        return orjson.dumps(data, option=orjson.OPT_INDENT_2 if indent else None)
    except TypeError:
        between = (",", ": ") if indent else (",", ":")
        step = 2 if indent else None
        return json.dumps(data, ensure_ascii=False, allow_nan=False, indent=step, separators=between).encode()


def from_json(text: bytes | str) -> Any:
    """Plain data from JSON. Raises NotJSON."""
    data = text.encode() if isinstance(text, str) else text
    if not _MANY_DIGITS.search(data):
        return orjson.loads(data)
    orjson.loads(data)  # refuses what is no JSON to either: bytes that are no text, NaN
    return json.loads(data)
