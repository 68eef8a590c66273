"""A YAML file with the line of everything in it, and with `${NAME}` replaced by the environment.

Determines which scalars are numbers (YAML 1.2: `no` and `12:30` are text), reports duplicate keys, and knows the
secrets: all values from the environment, which `masked` removes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from pyspark_folkmoot.pipeline.fault import Fault, Faults

__all__ = ["Document", "Path_", "read_document"]

Path_ = tuple[str | int, ...]
"""The path of a value: the keys and indices that lead to it."""

DEPTH_MAX: Final = 30
NODES_MAX: Final = 100_000
"""Limit of values in a file, counting every use of an alias: seven lines of aliases can expand to a million values."""

TOO_DEEP: Final = f"is nested more than {DEPTH_MAX} levels deep"
DIGITS_MAX: Final = 100
"""Longer numbers remain text: Python refuses to parse them, and keys that need a number refuse the text."""

SECRET_LEAST: Final = 4
"""Shorter values from the environment are not masked: hiding every `1` would hide everything."""

_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_VARIABLE: Final = re.compile(r"\$?\$\{([^}]*)\}")
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'")
_BARE: Final = re.compile(r"[{\[].*\$\{")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Document:
    """The values of a file (`data`), their original text (`raw`), and their lines."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.data: Any = None
        self.raw: Any = None
        self.faults: list[Fault] = []
        self.secrets: dict[str, str] = {}
        self._texts: dict[Path_, str] = {}
        self._lines: dict[Path_, int] = {}
        self._text_lines: dict[Path_, int] = {}

    def line(self, path: Path_) -> int:
        """Return the line of the key or item at `path`, or of the nearest parent."""
        for length in range(len(path), -1, -1):
            if path[:length] in self._lines:
                return self._lines[path[:length]]
        return 1

    def text_line(self, path: Path_, number: int = 1) -> int:
        """Return the line of the file that has line `number` of the text at `path`."""
        first = self._text_lines.get(path)
        return self.line(path) if first is None else first + number - 1

    def take_as_text(self, path: Path_) -> bool:
        """Replace a number at `path` with the text of its variable; False if it did not come from one."""
        if path not in self._texts:
            return False
        found = self.data
        for part in path[:-1]:
            found = found[part]
        found[path[-1]] = self._texts.pop(path)
        return True

    def masked(self, text: str) -> str:
        """Return `text` with every secret replaced by the name of its variable."""
        for value in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(value, self.secrets[value])
        return text

    def fault(self, path: Path_, text: str) -> None:
        """Add an error about the value at `path`, without secrets."""
        self.faults.append(Fault(self.line(path), self.masked(text)))


def read_document(file: Path, environment: Mapping[str, str]) -> Document:
    """Return the document in `file`; raises `Faults` if it cannot be read or is not YAML."""
    document = Document(file)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise Faults(str(file), [Fault(0, f"cannot be read: {reason}")]) from None
    root = _composed(file, text)
    if root is None:
        raise Faults(str(file), [Fault(1, "is empty: a pipeline has name, sources and sinks")])
    if not isinstance(root, yaml.MappingNode):
        what = "a list" if isinstance(root, yaml.SequenceNode) else "a text"
        told = f"is {what}: a pipeline has keys, among them name, sources and sinks"
        raise Faults(str(file), [Fault(root.start_mark.line + 1, told)])
    document.raw = _Reader(document, environment).value(root, (), expand=False)
    document.data = _Reader(document, environment).value(root, (), expand=True)
    return document


def _composed(file: Path, text: str) -> yaml.Node | None:
    """Return the root node of the file; raises `Faults`."""
    try:
        depth = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEPTH_MAX + 1:
                line = event.start_mark.line + 1 if event.start_mark is not None else 0
                raise Faults(str(file), [Fault(line, TOO_DEEP)])
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 0
        lines = text.splitlines()
        hint = ""
        if 0 < line <= len(lines) and _BARE.search(_QUOTED.sub("", lines[line - 1])):
            hint = '; within braces a variable needs quotes: {token: "${NAME}"}'
        raise Faults(str(file), [Fault(line, f"is no YAML: {error.problem or error.context}{hint}")]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        told = f"is no YAML: the character U+{ord(text[error.position]):04X} cannot stand in it"
        raise Faults(str(file), [Fault(line, told)]) from None
    except yaml.YAMLError as error:
        raise Faults(str(file), [Fault(0, f"is no YAML: {error}")]) from None


class _Reader:
    """Turns YAML nodes into values, and adds lines and errors to the document."""

    def __init__(self, document: Document, environment: Mapping[str, str]) -> None:
        self.document = document
        self.environment = environment
        self._values = 0

    def value(self, node: yaml.Node, path: Path_, expand: bool) -> Any:
        self.document._lines.setdefault(path, node.start_mark.line + 1)  # noqa: SLF001 - one module
        self._values += 1
        if self._values > NODES_MAX:
            line = self.document.line(path[:1])
            told = f"has more than {NODES_MAX:,} values, each alias (*NAME) counted with all that it stands for"
            raise Faults(str(self.document.file), [Fault(line, told)])
        if len(path) > DEPTH_MAX:
            if expand:
                self.document.fault(path, TOO_DEEP)
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, expand)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, index), expand) for index, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node, path, expand)

    def _mapping(self, node: yaml.MappingNode, path: Path_, expand: bool) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            wrong = _no_key(key_node)
            if wrong is not None:
                if expand:
                    self.document.faults.append(Fault(key_node.start_mark.line + 1, wrong))
                continue
            assert isinstance(key_node, yaml.ScalarNode)
            key = _plain(key_node)
            if key is None or isinstance(key, bool | float):
                key = str(key_node.value)
            if key in found and expand:
                first = self.document.line((*path, key))
                line = key_node.start_mark.line + 1
                self.document.faults.append(Fault(line, f"'{key}' comes twice: it is at line {first} already"))
                continue
            self.document._lines[(*path, key)] = key_node.start_mark.line + 1  # noqa: SLF001 - one module
            found[key] = self.value(value_node, (*path, key), expand)
        return found

    def _scalar(self, node: yaml.ScalarNode, path: Path_, expand: bool) -> Any:
        block = node.style in ("|", ">")
        self.document._text_lines[path] = node.start_mark.line + (2 if block else 1)  # noqa: SLF001 - one module
        found = _plain(node)
        if not isinstance(found, str) or not expand or "${" not in found:
            return found
        expanded = _VARIABLE.sub(lambda match: self._variable(match, path), found)
        # A text that consists of one variable has the type of its value: a port is a number, a switch a boolean.
        whole = _VARIABLE.fullmatch(found) and node.style is None and not found.startswith("$$")
        typed = _typed(expanded) if whole else expanded
        if not isinstance(typed, str) and typed is not None:
            self.document._texts[path] = expanded  # noqa: SLF001 - one module
        return typed

    def _variable(self, match: re.Match[str], path: Path_) -> str:
        if match[0].startswith("$$"):
            return match[0][1:]
        name = match[1]
        if not _NAME.fullmatch(name):
            self.document.fault(
                path, f"'{match[0]}' names no variable of the environment: write ${{NAME}}, or $${{...}} for the text"
            )
            return match[0]
        if name not in self.environment:
            self.document.fault(path, f"'${{{name}}}' is not set in the environment: set {name}, or write the value")
            return match[0]
        value = self.environment[name]
        if len(value) >= SECRET_LEAST:
            self.document.secrets[value] = match[0]
        return value


def _no_key(node: yaml.Node) -> str | None:
    """Return why a node cannot be a key; None if it can."""
    if not isinstance(node, yaml.ScalarNode):
        return f"a {'list' if isinstance(node, yaml.SequenceNode) else 'mapping'} cannot be a key: write a name"
    merge = node.style is None and node.value == "<<"
    return "'<<' (a merge of YAML) is not supported: write the keys out" if merge else None


def _plain(node: yaml.ScalarNode) -> Any:
    text = str(node.value)
    return _typed(text) if node.style is None else text


def _typed(text: str) -> Any:
    """Return the value of an unquoted word, by the core schema of YAML 1.2."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE"):
        return True
    if text in ("false", "False", "FALSE"):
        return False
    if _INTEGER.fullmatch(text):
        return int(text) if len(text) <= DIGITS_MAX else text
    return float(text) if _FLOAT.fullmatch(text) else text
