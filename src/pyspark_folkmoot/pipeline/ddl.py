"""Parses the text of a schema, `time TIMESTAMP, delay DOUBLE`, without Spark, for clear error messages.

It knows the types that can be decoded, not every Spark type. Spark parses the same text again when it runs.
"""

from __future__ import annotations

import re
from typing import Final

from pyspark_folkmoot.pipeline.fault import valid

__all__ = ["SchemaFault", "parse_schema"]

TYPES: Final = (
    "BOOLEAN",
    "BYTE",
    "TINYINT",
    "SHORT",
    "SMALLINT",
    "INT",
    "INTEGER",
    "LONG",
    "BIGINT",
    "FLOAT",
    "REAL",
    "DOUBLE",
    "DECIMAL",
    "NUMERIC",
    "STRING",
    "BINARY",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "ARRAY",
    "MAP",
    "STRUCT",
    "VARIANT",
)
_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)+`|[A-Za-z0-9_]+|'(?:[^'\\]|\\.)*'|[<>(),:])")


class SchemaFault(ValueError):
    """The text is not a valid schema; the message says where and what is valid."""


def parse_schema(text: str) -> dict[str, str]:
    """Return the columns of a schema with the text of their types, in order; raises SchemaFault."""
    return _Parser(text).columns()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise SchemaFault(f"schema: '{text[at:].strip()[:20]}' cannot stand in 'name TYPE, name TYPE'")
            self.tokens.append(match[1])
            at = match.end()
        self.at = 0

    def columns(self) -> dict[str, str]:
        found = self._fields(":", end="")
        if not found:
            raise SchemaFault("schema is empty: write 'name TYPE, name TYPE', such as 'time TIMESTAMP, value DOUBLE'")
        return found

    def _peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self.at += 1
        return token

    def _expect(self, wanted: str, after: str) -> None:
        token = self._take()
        if token != wanted:
            raise SchemaFault(f"schema: '{wanted}' is missing after '{after}'" + (f", not '{token}'" if token else ""))

    def _fields(self, separator: str, end: str) -> dict[str, str]:
        found: dict[str, str] = {}
        while self._peek() != end:
            name = self._take()
            if not re.fullmatch(r"[A-Za-z0-9_]+|`.*`", name):
                raise SchemaFault(f"schema: '{name}' is no name of a column" if name else "schema: it ends too early")
            name = name.strip("`").replace("``", "`")
            if name.lower() in [known.lower() for known in found]:
                raise SchemaFault(f"schema: the column '{name}' comes twice")
            if self._peek() == separator:
                self._take()
            found[name] = self._type(name)
            self._suffix()
            if self._peek() != end:
                self._expect(",", found[name])
                if self._peek() == end:
                    raise SchemaFault("schema: it ends with a comma")
        return found

    def _suffix(self) -> None:
        """Skip NOT NULL and COMMENT 'text'."""
        if self._peek().upper() == "NOT":
            self._take()
            self._expect("NULL", "NOT") if self._peek() == "NULL" else self._expect("null", "NOT")
        if self._peek().upper() == "COMMENT":
            self._take()
            self._take()

    def _type(self, name: str) -> str:
        word = self._take()
        kind = word.upper()
        if not word or word in "<>(),:":
            raise SchemaFault(f"schema: the column '{name}' has no type{valid('', TYPES, 'types')}")
        if kind not in TYPES:
            raise SchemaFault(f"schema: '{word}' of column '{name}' is no type{valid(word, TYPES, 'types')}")
        if kind == "ARRAY":
            self._expect("<", kind)
            kind = f"ARRAY<{self._type(name)}>"
            self._expect(">", kind)
        elif kind == "MAP":
            self._expect("<", kind)
            key = self._type(name)
            self._expect(",", key)
            kind = f"MAP<{key}, {self._type(name)}>"
            self._expect(">", kind)
        elif kind == "STRUCT":
            self._expect("<", kind)
            inner = self._fields(":", end=">")
            kind = "STRUCT<" + ", ".join(f"{field}: {type_}" for field, type_ in inner.items()) + ">"
            self._expect(">", kind)
        elif kind in ("DECIMAL", "NUMERIC") and self._peek() == "(":
            kind += "".join(self.tokens[self.at : self.tokens.index(")", self.at) + 1]) if ")" in self.tokens else ""
            while self._peek() and self._take() != ")":
                pass
        return kind
