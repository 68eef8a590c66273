"""The shape of the code, checked: exports, what may not stand in a file, what is compiled."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.tidy.build import ROOT, SOURCE, build_file

TESTS = ROOT / "tests"

NOTE = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?!.{0,20}#\d)")
MACHINE_PATH = re.compile(r"(^|[^A-Za-z0-9_.])/(work|farm|root|home)/")
CLOCK = re.compile(r"\b(time|asyncio|anyio)\.sleep\(|\btime\.(time|time_ns|monotonic|perf_counter)\(|\.now\(\)")
CALENDAR = re.compile(r"\b(datetime|date)\.(now|utcnow|today)\(")


def refuse(faults: list[str], advice: str = "") -> None:
    """Fail with every fault on a line of its own."""
    if faults:
        pytest.fail("\n  ".join([advice, *faults]), pytrace=False)


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path), str(path))


def sources() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def modules_of_tests() -> list[Path]:
    return sorted(TESTS.rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def exports(path: Path) -> list[str] | None:
    """The names in `__all__`, or None without one."""
    for node in tree_of(path).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == "__all__":
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            assert node.value is not None, name_of(path)
            return [str(name) for name in ast.literal_eval(node.value)]
    return None


def bound(path: Path) -> set[str]:
    """The names that a module binds at its top level, also in `if` and `try`."""
    names: set[str] = set()
    waiting: list[ast.AST] = list(tree_of(path).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        else:
            waiting.extend(ast.iter_child_nodes(node))
    return names


def imported(node: ast.AST) -> list[str]:
    """The modules that an import statement names; none for any other node."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom) or node.module is None:
        return []
    if node.module == "folkmoot":
        return [f"folkmoot.{alias.name}" for alias in node.names if alias.name != "__version__"]
    return [node.module]


def tracked() -> list[Path]:
    """The text files that belong to the project; in an unpacked archive, which has no git, the Python files."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode:
        return [*sources(), *modules_of_tests()]
    paths = [ROOT / name for name in listing.stdout.splitlines()]
    return [path for path in paths if path.is_file() and b"\0" not in path.read_bytes()[:8192]]


def caught_as(function: ast.FunctionDef) -> dict[str, set[str]]:
    """The classes that a function catches, by the name that it gives them."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.ExceptHandler) and node.name and node.type is not None:
            found.setdefault(node.name, set()).add(ast.unparse(node.type))
    return found


def test_what_is_caught_has_one_name_per_class() -> None:
    # Compiled, a name has the class of its first handler in the function: a second one would raise TypeError.
    pure = tuple(f"folkmoot.{package}." for package in build_file().PURE_PACKAGES)
    faults = [
        f"{name_of(path)}:{node.lineno} {node.name}: {name} is {' and '.join(sorted(classes))}"
        for path in sources()
        if module_of(path).startswith(pure)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef)
        for name, classes in caught_as(node).items()
        if len(classes) > 1
    ]
    refuse(faults, "give each class that is caught a name of its own")


def test_every_module_says_what_it_owns() -> None:
    silent = [name_of(path) for path in sources() if not ast.get_docstring(tree_of(path))]
    refuse(silent, "these modules have no docstring")


def test_every_module_lists_what_it_exports() -> None:
    faults = []
    for path in sources():
        names = exports(path)
        if names is None:
            faults.append(f"{name_of(path)}: no __all__")
            continue
        faults += [f"{name_of(path)}: __all__ names {name}, which is not there" for name in set(names) - bound(path)]
        if len(names) != len(set(names)):
            faults.append(f"{name_of(path)}: __all__ names something twice")
    refuse(faults)


def test_modules_import_only_what_others_export() -> None:
    exported = {module_of(path): set(exports(path) or []) for path in sources()}
    faults = []
    for path in sources():
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.ImportFrom) or node.module not in exported:
                continue
            faults += [
                f"{name_of(path)}:{node.lineno} takes {alias.name} from {node.module}, whose __all__ lacks it"
                for alias in node.names
                if alias.name not in exported[node.module] and f"{node.module}.{alias.name}" not in exported
            ]
    refuse(faults)


def asks_spark(path: Path) -> bool:
    """Whether a module of the broker's package may start what runs in Spark, when it is asked to."""
    return "demo" in path.parts or module_of(path) in ("folkmoot.cli.pipeline", "folkmoot.cli.ready")


def test_the_spark_package_sees_only_its_part() -> None:
    # By hand and not by import-linter: the package must import without pyspark, and the broker without the package.
    allowed = ("client", "kernel", "mqtt", "store.chunk", "streams")
    faults = []
    for path in sources():
        of_spark = module_of(path).startswith("pyspark_folkmoot")
        for node in ast.walk(tree_of(path)):
            for module in imported(node):
                parts = module.split(".")
                seen = [*parts[1:2], ".".join(parts[1:3])]
                if of_spark and parts[0] == "folkmoot" and not set(seen).intersection(allowed) and len(parts) > 1:
                    faults.append(f"{name_of(path)} imports {module}: it may see {', '.join(allowed)}")
                if parts[0] == "pyspark_folkmoot" and not of_spark and not asks_spark(path):
                    faults.append(f"{name_of(path)} imports {module}: only the demo and commands that run Spark may")
    refuse(faults)


def test_notes_to_self_have_an_issue() -> None:
    faults = [
        f"{name_of(path)}:{number} {line.strip()}"
        for path in [*sources(), *modules_of_tests()]
        if path != Path(__file__)
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if NOTE.search(line)
    ]
    refuse(faults, "do it, or give it the number of an issue")


def test_no_path_of_a_machine() -> None:
    faults = [
        f"{name_of(path)}:{number} {line.strip()[:100]}"
        for path in tracked()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    refuse(faults)


def test_tests_need_no_clock() -> None:
    faults = [
        f"{name_of(path)}:{number} {line.strip()}"
        for path in modules_of_tests()
        if path.relative_to(TESTS).parts[0] not in ("integration", "e2e", "jepsen") and path != Path(__file__)
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if CLOCK.search(line)
    ]
    refuse(faults, "time is an argument; real clocks belong in tests/integration, tests/e2e and tests/jepsen")


def test_the_pure_half_reads_no_clock() -> None:
    faults = [
        f"{name_of(path)}:{number} {line.strip()}"
        for path in build_file().compiled_files()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if CALENDAR.search(line)
    ]
    refuse(faults, "datetime may turn numbers into text there, never say what time it is")


def test_every_pure_module_is_compiled_or_says_why_not() -> None:
    setup = build_file()
    compiled = set(setup.compiled_files())
    faults = [
        name_of(path)
        for package in setup.PURE_PACKAGES
        for path in (SOURCE / "folkmoot" / package).rglob("*.py")
        if path not in compiled and not setup.excluded(f"{package}.{path.stem}")
    ]
    refuse(faults, "a package of the pure half has one level of modules")
    here = {module_of(path).removeprefix("folkmoot.") for path in sources()}
    gone = [module for module in setup.EXCLUDED if not module.startswith("*.") and module not in here]
    refuse(gone, "setup.py excludes modules that do not exist")
    assert all(len(reason) > 20 for reason in setup.EXCLUDED.values())


def test_the_pure_half_is_the_same_everywhere() -> None:
    pure = list(build_file().PURE_PACKAGES)
    assert pure == sorted(pure)
    rules = configparser.ConfigParser()
    rules.read(ROOT / ".importlinter", encoding="utf-8")
    modules = rules["importlinter:contract:pure"]["source_modules"].split()
    assert sorted({module.split(".")[1] for module in modules}) == pure
