"""The wire: MQTT 3.1, 3.1.1 and 5.0 packets as objects, from bytes and to bytes, in both directions.

Owns the format and every rule that one packet alone can break. Never knows a session, a clock or a socket. Import the
modules by name: `packet`, `kind`, `reason`, `error`, `decode`, `encode`, `framer`, `varint`, `text`.
"""

from __future__ import annotations

__all__: list[str] = []
