"""Folkmoot: an MQTT broker made of equal nodes, with streams that Spark can read again.

Owns the version number and nothing else: importing it is free, the parts are imported by name.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
