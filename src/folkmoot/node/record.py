"""The newest view that a node has installed, kept as a row of its own: a restarted node knows whom to look for."""

from __future__ import annotations

from typing import Final

from folkmoot.cluster.view import View, decode_view, encode_view
from folkmoot.kernel.errors import CorruptStore
from folkmoot.store.key import META, plain_key
from folkmoot.store.reader import Reader
from folkmoot.store.writer import VERSION_BYTES, Writer

__all__ = ["put_view", "read_view"]

_KEY: Final = plain_key(0, META, b"view")


def read_view(reader: Reader) -> View | None:
    """Return the view that was installed last, None if there was none; raises CorruptStore."""
    value = reader.get(_KEY)
    if value is None:
        return None
    try:
        return decode_view(value[VERSION_BYTES:])
    except ValueError as fault:
        raise CorruptStore(f"the row of the view is damaged: {fault}") from None


def put_view(writer: Writer, view: View) -> None:
    """Put the row into this turn's batch."""
    writer.private(_KEY, encode_view(view))
