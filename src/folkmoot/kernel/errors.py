"""The exceptions of the project. Each text says what is wrong and what to do. In a core, remote input raises none."""

from __future__ import annotations

__all__ = ["CorruptStore", "FolkmootError", "SnapshotGone", "StoreError"]


class FolkmootError(Exception):
    """Base of all errors that are shown to users: the text says what is wrong and what to do."""


class StoreError(FolkmootError):
    """The store cannot be opened, read or written."""


class CorruptStore(StoreError):
    """The store has bytes that no version of this program wrote; nothing is dropped silently."""


class SnapshotGone(StoreError):
    """A snapshot of the store was closed while it was still in use: begin again with a new one."""
