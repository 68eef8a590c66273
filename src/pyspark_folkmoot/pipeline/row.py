"""Decoded rows as Arrow structs: a row that does not match its columns gets a reason and never fails its batch.

Decoders say why a payload is invalid; this module finds what they accept and Arrow refuses. Otherwise such a batch
would fail and be repeated forever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

__all__ = ["REASON", "structs"]

REASON: Final = "_reason"
"""The field that says why a payload has no row; null when it has one."""

REASON_CHARACTERS: Final = 300


def structs(rows: Sequence[tuple[dict[str, Any] | None, str | None]], kind: pa.StructType) -> pa.Array:
    """Return the fields of each row, or why it has none, as an array of `kind`, which has the field `_reason`."""
    found = [{**(fields or {}), REASON: _readable(reason)} for fields, reason in rows]
    try:
        return pa.array(found, type=kind)
    except Exception:  # noqa: BLE001 - Arrow raises many kinds, and does not say of which row
        return pa.array([_fitting(row, kind) for row in found], type=kind)


def _fitting(row: dict[str, Any], kind: pa.StructType) -> dict[str, Any]:
    try:
        pa.array([row], type=kind)
    except Exception as error:  # noqa: BLE001 - as above
        return {REASON: _readable(f"does not fit its columns: {error}")}
    return row


def _readable(reason: str | None) -> str | None:
    return None if reason is None else reason[:REASON_CHARACTERS].encode("utf-8", "replace").decode()
