"""The data model: keys and values of rows, their versions, batches of changes, and reading of rows. Owns no files."""

from __future__ import annotations

__all__: list[str] = []
