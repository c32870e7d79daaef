"""JSON with integers of any size: a state may hold the bitmap of a batch, or a counter that overflowed."""

from __future__ import annotations

from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class NotJSON(ValueError):
    """Raised for text that is not JSON in UTF-8. The message says why."""


def to_json(data: Any, *, indent: bool = False) -> bytes:
    """Returns plain data, or a command's result, as JSON in UTF-8; with `indent`, on several lines.

    Raises TypeError or ValueError for other values. Cost: O(size).
    """
    text = _encode(data)
    return msgspec.json.format(text, indent=2) if indent else text


def from_json(text: bytes | str) -> Any:
    """Returns the plain data that a JSON text encodes. Raises NotJSON."""
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise NotJSON(str(problem)) from None
