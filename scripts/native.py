"""Make `build/native`: the compiled tree that `make run`, `make test` and `.venv/bin/folkmoot` use.

The native modules of the pure half lie there among links to all the sources, so that only a change of the pure half
needs compiling. An unchanged tree costs a few milliseconds: the manifest names each compiled source with its digest,
and `folkmoot` itself reads it to warn when a source has changed since.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
NATIVE = ROOT / "build" / "native"
MANIFEST = "native-sources.txt"


def load_setup() -> ModuleType:
    """The build file as a module, for its list of what is compiled."""
    spec = importlib.util.spec_from_file_location("folkmoot_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def digest(path: Path) -> str:
    """The SHA-256 of a file, as hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def manifest(setup: ModuleType) -> str:
    """What the compiled tree is made of: the tools in one line, then a line for each source."""
    mypy = importlib.metadata.version("mypy")
    tools = f"# {sys.version.split()[0]} mypy {mypy} setup.py {digest(ROOT / 'setup.py')[:16]} sources under {SOURCE}"
    lines = [f"{digest(path)} {path.relative_to(SOURCE)}" for path in setup.compiled_files()]
    return "\n".join([tools, *lines]) + "\n"


def link(target: Path, source: Path) -> None:
    """Make `target` a link to `source`, if it is not one already."""
    if not target.is_symlink():
        target.unlink(missing_ok=True)
        target.symlink_to(source)


def link_sources(setup: ModuleType) -> None:
    """Lay the sources around the native modules as links (Python prefers a native module to its source)."""
    for path in list(NATIVE.rglob("*")):
        if path.is_symlink() and not path.exists():
            path.unlink()
    for path in sorted(SOURCE.glob("*/__init__.py")):
        if path.parent.name != "folkmoot":
            link(NATIVE / path.parent.name, path.parent)
    for path in sorted((SOURCE / "folkmoot").iterdir()):
        target = NATIVE / "folkmoot" / path.name
        if path.name in setup.PURE_PACKAGES:
            target.mkdir(parents=True, exist_ok=True)
            for module in sorted(path.glob("*.py")):
                link(target / module.name, module)
        elif path.name != "__pycache__":
            link(target, path)


def point_environment() -> None:
    """Let the environment's `folkmoot` find the compiled tree before the sources (its name sorts first)."""
    if sys.prefix != sys.base_prefix:
        Path(sysconfig.get_paths()["purelib"], "00-folkmoot-native.pth").write_text(f"{NATIVE}\n", encoding="utf-8")


def compile_sources() -> bool:
    """Compile into an empty tree; False when it failed."""
    shutil.rmtree(NATIVE, ignore_errors=True)
    command = [sys.executable, "setup.py", "-q", "build_ext", f"--build-lib={NATIVE}", "--build-temp=build/temp"]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "FOLKMOOT_NATIVE": "1"}, check=False).returncode == 0


def main() -> int:
    """Bring `build/native` up to date; 1 when compiling fails."""
    setup = load_setup()
    stamp = NATIVE / MANIFEST
    wanted = manifest(setup)
    current = stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted
    pure_wanted = os.environ.get("FOLKMOOT_PURE", "") not in ("", "0")
    reason = "" if current and not pure_wanted else setup.pure_reason()
    if reason:
        print(f"NOT COMPILED, running as pure Python, several times slower: {reason}", file=sys.stderr)
        shutil.rmtree(NATIVE, ignore_errors=True)
    elif current:
        print("build/native is up to date")
    elif not compile_sources():
        shutil.rmtree(NATIVE, ignore_errors=True)
        print("compiling failed; FOLKMOOT_PURE=1 runs the interpreted sources", file=sys.stderr)
        return 1
    (NATIVE / "folkmoot").mkdir(parents=True, exist_ok=True)
    link_sources(setup)
    if not reason:
        stamp.write_text(wanted, encoding="utf-8")
    point_environment()
    return 0


if __name__ == "__main__":
    sys.exit(main())
