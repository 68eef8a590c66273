"""Parametrisation of a test over protocol versions, with readable ids."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import V5, V31, V311

__all__ = ["ALL", "BOTH", "OLD"]

NAMES = {V31: "3.1", V311: "3.1.1", V5: "5.0"}


def _versions(*versions: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", versions, ids=[NAMES[version] for version in versions])


BOTH = _versions(V311, V5)
ALL = _versions(V31, V311, V5)
OLD = _versions(V31, V311)
