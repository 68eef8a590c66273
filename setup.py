"""The build: compiles the pure half with mypyc as one native unit, or says why it does not.

Owns the list of what is compiled. `FOLKMOOT_PURE=1` switches compiling off, `FOLKMOOT_NATIVE=1` makes a missing C
compiler an error instead of a fallback. An editable install is always pure: native modules beside the sources would
go on running after the sources have changed; `make build` makes the compiled tree that `make run` and `make test` use.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import sysconfig
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
SOURCE = ROOT / "src"

# The pure half, sorted: packages that import no clock, socket, thread or random source (DESIGN: "the pure half is
# also the compiled half"). Every module of them is compiled together, so that calls between them stay native.
PURE_PACKAGES = (
    "auth",
    "broker",
    "channel",
    "delivery",
    "feed",
    "kernel",
    "leadership",
    "membership",
    "merge",
    "metrics",
    "mqtt",
    "node",
    "partition",
    "peer",
    "protocol",
    "proxy",
    "query",
    "raft",
    "replica",
    "report",
    "routing",
    "session",
    "status",
    "store",
    "streams",
    "topics",
    "turn",
)

# Modules of the pure packages that stay interpreted, each with its reason ("*" is any package).
EXCLUDED = {
    "*.__init__": "only re-exports names: nothing to gain, and one shared object less per package",
}

# 2 and not 3: decoding, encoding and matching take the same time (best of several runs: within 3 %, either way), and
# the build takes two thirds of it.
OPT_LEVEL = "2"

# Names are bound within the library. Otherwise each of its 20,000 calls from function to function goes through a table,
# because another library might define the same name, and the processor takes about a fifth longer.
LINK_ARGS = ["-Wl,-Bsymbolic"] if sys.platform == "linux" else []


def excluded(module: str) -> str | None:
    """Why `module` ("package.module") stays interpreted, or None when it is compiled."""
    return EXCLUDED.get(module) or EXCLUDED.get("*." + module.rsplit(".", 1)[-1])


def compiled_files() -> list[Path]:
    """The sources to compile, sorted; a package of the list that does not exist yet is left out."""
    files: list[Path] = []
    for package in PURE_PACKAGES:
        paths = sorted((SOURCE / "folkmoot" / package).glob("*.py"))
        files.extend(path for path in paths if excluded(f"{package}.{path.stem}") is None)
    return files


def pure_reason() -> str:
    """Why this build does not compile; empty when it does."""
    if os.environ.get("FOLKMOOT_PURE", "") not in ("", "0"):
        return "FOLKMOOT_PURE is set"
    if sys.implementation.name != "cpython":
        return f"mypyc needs CPython, this is {sys.implementation.name}"
    try:
        import mypyc.build  # noqa: F401
    except ImportError as error:
        return f"mypyc is not installed ({error})"
    return compiler_reason()


def compiler_reason() -> str:
    """Try the C compiler with Python's headers on three lines; say what is missing, or nothing."""
    from distutils.ccompiler import new_compiler
    from distutils.errors import CCompilerError, DistutilsError
    from distutils.sysconfig import customize_compiler

    compiler = new_compiler()
    customize_compiler(compiler)
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder) / "probe.c"
        probe.write_text("#include <Python.h>\nint probe(void) { return PY_VERSION_HEX != 0; }\n", encoding="ascii")
        include = sysconfig.get_paths()["include"]
        try:
            objects = compiler.compile([str(probe)], output_dir=folder, include_dirs=[include])
            compiler.link_shared_object(objects, str(Path(folder) / "probe.so"))
        except (CCompilerError, DistutilsError, OSError) as error:
            return f"no C compiler that finds Python.h ({error})"
    return ""


def say(text: str) -> None:
    """Print one line of the build at once: pip shows it with -v, make always."""
    print(f"folkmoot: {text}", file=sys.stderr, flush=True)


def native_modules() -> list[Extension]:
    """Turn the pure half into C; this is where mypy checks it."""
    from mypyc.build import mypycify

    files = compiled_files()
    say(f"compiling {len(files)} modules with mypyc (a few minutes); FOLKMOOT_PURE=1 switches this off")
    options = ["--config-file=", f"--cache-dir={ROOT / 'build' / 'mypy'}", "--python-version=3.11"]
    paths = [str(path.relative_to(ROOT)) for path in files]
    modules: list[Extension] = mypycify(
        [*options, *paths],
        group_name="folkmoot",
        opt_level=OPT_LEVEL,
        multi_file=True,
        target_dir=str(ROOT / "build" / "c"),
    )
    for module in modules:
        module.extra_link_args = [*(module.extra_link_args or []), *LINK_ARGS]
    return modules


class Objects:
    """Object files of earlier builds, kept by the digest of all that they are made of.

    Editing a module changes few of the C files, and the wheel of an unchanged tree needs no compiler: compiling takes
    ten times as long as writing the C files. What the last build did not use is removed.
    """

    def __init__(self, command: list[str]) -> None:
        self.folder = ROOT / "build" / "objects" / str(sys.implementation.cache_tag)
        self.used: set[str] = set()
        # Includes are told by their content and not by their path: each isolated build has a folder of its own.
        self.base = "\0".join([sys.version, sysconfig.get_platform(), *command])
        self.headers: dict[str, str] = {}
        self.folder.mkdir(parents=True, exist_ok=True)

    def key(self, source: str, folders: list[str], flags: list[str]) -> str:
        """The name of the object of a C file, compiled with these include folders and flags."""
        content = hashlib.sha256(Path(source).read_bytes()).hexdigest()
        headers = [self.headers_of(folder) for folder in folders]
        return hashlib.sha256("\0".join([self.base, content, *headers, *flags]).encode()).hexdigest()

    def headers_of(self, folder: str) -> str:
        """The digest of what C files can include from a folder."""
        if folder not in self.headers:
            digest = hashlib.sha256()
            paths = [path for path in Path(folder).rglob("*") if path.suffix == ".h" or is_included(path)]
            for path in sorted(paths):
                digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
            self.headers[folder] = digest.hexdigest()
        return self.headers[folder]

    def take(self, key: str, target: str) -> bool:
        """Put the kept object in its place; False when there is none."""
        self.used.add(key)
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(self.folder / f"{key}.o", target)
        except FileNotFoundError:
            return False
        return True

    def keep(self, key: str, made: str) -> None:
        """Keep an object that was compiled; all of it or nothing, should the build be stopped."""
        part = self.folder / f"{key}.{os.getpid()}"
        shutil.copyfile(made, part)
        part.replace(self.folder / f"{key}.o")

    def prune(self) -> None:
        """Remove the objects that this build did not use. Another build of this tree may be doing the same."""
        for path in self.folder.glob("*.o"):
            if path.stem not in self.used:
                path.unlink(missing_ok=True)


def is_included(path: Path) -> bool:
    """Whether a C file is one of mypyc's own, some of which include others; generated ones do not."""
    return path.suffix == ".c" and "lib-rt" in path.parts


class BuildNative(build_ext):
    """Compiles the C files of an extension side by side, reuses those of earlier builds, shows how far it is."""

    def finalize_options(self) -> None:
        """Build the small extension of each module side by side too."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extensions(self) -> None:
        """Put the counting, parallel, reusing compile step in place of the compiler's own."""
        compile_one = self.compiler.compile
        objects = Objects(self.compiler.compiler_so)
        total = sum(len(extension.sources) for extension in self.extensions)
        done = reused = 0
        lock = threading.Lock()

        def step(source: str, output_dir: str, options: dict[str, Any]) -> str:
            nonlocal done, reused
            (target,) = self.compiler.object_filenames([source], output_dir=output_dir)
            flags = [*(options.get("extra_postargs") or []), repr(options.get("macros"))]
            key = objects.key(source, options.get("include_dirs") or [], flags)
            found = objects.take(key, target)
            if not found:
                compile_one([source], output_dir=output_dir, **options)
                objects.keep(key, target)
            with lock:
                done += 1
                reused += found
                if done % 50 == 0 or done == total:
                    say(f"compiled {done - reused} of {total} C files, {reused} are of an earlier build")
            return target

        def compile_all(sources: list[str], output_dir: str = "", **options: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                return list(pool.map(lambda source: step(source, output_dir, options), sources))

        self.compiler.compile = compile_all
        super().build_extensions()
        objects.prune()


class BuildModules(build_py):
    """Copies the sources, and writes down why a pure build is pure, for `folkmoot --version`."""

    def run(self) -> None:
        """Copy into an empty folder, then leave the note."""
        if self.editable_mode:
            super().run()
            return
        # An earlier build may have left modules there that are gone since: they would be in the wheel.
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        note = Path(self.build_lib) / "folkmoot" / "build.txt"
        if REASON:
            note.write_text(REASON + "\n", encoding="utf-8")


# The commands that need the native modules; others (metadata, source archive, editable) must not wait for them.
COMPILING_COMMANDS = {"bdist_wheel", "build", "build_ext", "install"}
REASON = ""

if __name__ == "__main__":
    os.chdir(ROOT)
    extensions: list[Extension] = []
    if COMPILING_COMMANDS.intersection(sys.argv):
        REASON = pure_reason()
        if not REASON:
            extensions = native_modules()
        elif os.environ.get("FOLKMOOT_NATIVE", "") not in ("", "0"):
            sys.exit(f"folkmoot: cannot compile: {REASON}")
        else:
            say(f"NOT COMPILED, this will be a pure Python install, several times slower: {REASON}")
    setup(ext_modules=extensions, cmdclass={"build_ext": BuildNative, "build_py": BuildModules})
