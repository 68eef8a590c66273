"""Patterns of topics that bind levels to columns: `nyc/flights/{origin}/{carrier}`, with `+` and `#` as in MQTT."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["TopicPattern"]

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class TopicPattern:
    """A pattern: `names` are the columns in the order of the levels, `levels` their numbers (0 is the first level).

    `regex` matches a whole topic, and is valid in Java and Python. A name binds a whole level; `+` matches a level
    without binding it; `#`, at the end, matches this level and all below it. Raises ValueError.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: list[str] = []
        self.levels: list[int] = []
        if not text:
            raise ValueError("the topic is empty: write a pattern such as sensors/{site}/{device}")
        parts = text.split("/")
        regex = []
        for number, part in enumerate(parts):
            if part == "#":
                if number != len(parts) - 1:
                    raise ValueError(f"topic '{text}': # can only be the last level")
                continue
            regex.append("[^/]*" if part == "+" else self._named(part, number))
        whole = "/".join(regex)
        if parts[-1] == "#":
            # [MQTT-4.7.1-2] a/# matches a too.
            whole = f"{whole}(/.*)?" if regex else ".*"
        # Not $, which also matches before a final line break.
        self.regex = rf"(?s)^{whole}(?![\s\S])"

    def _named(self, part: str, number: int) -> str:
        if "{" not in part and "}" not in part:
            if "+" in part or "#" in part:
                raise ValueError(f"topic '{self.text}': + and # stand alone for a whole level, '{part}' mixes them")
            return re.sub(r"([^A-Za-z0-9 _-])", r"\\\1", part) if part.isascii() else re.escape(part)
        name = part[1:-1]
        if not (part.startswith("{") and part.endswith("}") and _NAME.fullmatch(name)):
            text = f"topic '{self.text}': '{part}' must be a whole level in braces with a column's name"
            raise ValueError(f"{text}, such as {{device}}")
        if name.lower() in [known.lower() for known in self.names]:
            raise ValueError(f"topic '{self.text}': the column '{name}' is bound twice")
        self.names.append(name)
        self.levels.append(number)
        return "[^/]*"

    def fits(self, topic: str) -> bool:
        """Return whether `topic` matches."""
        return re.match(self.regex, topic) is not None

    @property
    def prefix(self) -> str:
        """The common prefix of all matching topics."""
        return re.split(r"[{+#]", self.text, maxsplit=1)[0]
