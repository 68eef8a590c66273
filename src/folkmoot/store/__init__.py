"""The data model: keys and values of rows, versions, batches of changes, and how rows are read. Owns no files."""

from __future__ import annotations

__all__: list[str] = []
