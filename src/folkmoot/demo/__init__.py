"""The demonstration: New York's flights through a broker into Delta tables, with the broker and Spark killed."""

from __future__ import annotations

__all__: list[str] = []
