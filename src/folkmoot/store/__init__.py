"""The data model: keys and values of the rows of a partition, batches of changes.

And the reading interface. No files.
"""

from __future__ import annotations

__all__: list[str] = []
