"""The boxes that the tests of this folder use."""

from __future__ import annotations

from tests.harness.fixture import box, make

__all__ = ["box", "make"]
