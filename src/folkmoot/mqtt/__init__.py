"""The wire format: packets of MQTT 3.1, 3.1.1 and 5.0 as objects, decoded and encoded, in both directions.

Owns the format and every rule that concerns one packet alone. Knows no session, clock or socket. Import the modules by
name: `packet`, `kind`, `reason`, `error`, `decode`, `encode`, `framer`, `varint`, `text`.
"""

from __future__ import annotations

__all__: list[str] = []
