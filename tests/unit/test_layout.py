"""The promises of the tree itself."""

import ast
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import sluicegate

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 400
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError|unittest\.mock)\b")


def files(*suffixes: str) -> list[Path]:
    folders = [ROOT / name for name in ("src", "tests", "tools", "bench")]
    found = [path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix in suffixes]
    assert found
    return [path for path in found if "__pycache__" not in path.parts]


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def modules() -> list[ModuleType]:
    names = [info.name for info in pkgutil.walk_packages(sluicegate.__path__, "sluicegate.")]
    return [sluicegate, *map(importlib.import_module, names)]


def calls(tree: ast.AST) -> list[tuple[str, ast.Call]]:
    return [(ast.unparse(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_the_public_names_are_exactly_those_listed() -> None:
    tree = ast.parse((ROOT / "src/sluicegate/__init__.py").read_text())
    ours = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sluicegate")
        for alias in node.names
    }
    defined = {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    assert [*sluicegate.__all__] == sorted(ours)
    assert [name for name in defined if not name.startswith("_")] == [], "the package's __init__ only re-exports"
    assert set(sluicegate.__all__) <= set(dir(sluicegate))


def test_every_listed_name_exists() -> None:
    lacking = [
        f"{module.__name__}.{name}"
        for module in modules()
        for name in getattr(module, "__all__", ())
        if not hasattr(module, name)
    ]
    assert lacking == []


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, list[str]] = {}
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(short(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_file_has_more_than_four_hundred_lines() -> None:
    long = {short(path): lines for path in files(".py", ".sql") if (lines := len(path.read_text().splitlines())) > 400}
    assert long == {}, f"past {MOST_LINES} lines: which second subject has moved in?"


def test_nothing_is_left_for_later() -> None:
    found = [
        f"{short(path)}:{number}: {line.strip()}"
        for path in files(".py", ".sql", ".toml", ".md")
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    assert found == []


def test_no_test_sleeps() -> None:
    """A test waits for a fact (tests/support/waiting.py); only giving up the turn, ``sleep(0)``, is allowed."""
    sleeping = [
        f"{short(path)}:{call.lineno}: {ast.unparse(call)}"
        for path in files(".py")
        if path.is_relative_to(ROOT / "tests") and not path.is_relative_to(ROOT / "tests" / "support")
        for name, call in calls(ast.parse(path.read_text()))
        if name in ("time.sleep", "asyncio.sleep", "sleep") and ast.unparse(call.args[0]) != "0"
    ]
    assert sleeping == []


def asserting_helpers(tree: ast.Module) -> set[str]:
    """Names by which a module can assert: its own functions that do, and whatever it has from the tests' support."""
    helpers = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests.")
        for alias in node.names
    }
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for _ in range(3):
        helpers |= {function.name for function in functions if asserts(function, helpers)}
    return helpers


def asserts(function: ast.AST, helpers: set[str]) -> bool:
    if any(isinstance(node, ast.Assert) for node in ast.walk(function)):
        return True
    names = {name for name, _ in calls(function)}
    return bool(names & helpers) or any(name in ("pytest.raises", "pytest.fail") for name in names)


def test_every_test_asserts_something() -> None:
    empty = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        tree = ast.parse(path.read_text())
        helpers = asserting_helpers(tree)
        empty += [
            f"{short(path)}:{node.lineno}: {node.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name.startswith("test_")
            and not asserts(node, helpers)
        ]
    assert empty == []


def test_the_first_script_needs_the_standard_library_only() -> None:
    tree = ast.parse((ROOT / "dev").read_text())
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= sys.stdlib_module_names


def test_the_first_script_is_a_shell_script_too() -> None:
    assert os.access(ROOT / "dev", os.X_OK)
    lines = (ROOT / "dev").read_text().splitlines()
    head = "\n".join(lines[: lines.index("exit 2") + 1])
    parsed = subprocess.run(["sh", "-n", "-c", head], capture_output=True, text=True, check=False)
    assert parsed.returncode == 0, parsed.stderr
    shown = subprocess.run(["sh", ROOT / "dev", "help"], capture_output=True, text=True, check=False)
    assert shown.returncode == 0
    assert "Usage: ./dev VERB" in shown.stdout


@pytest.mark.parametrize("found", ["nothing", "an old Python"])
def test_without_a_usable_python_it_says_what_to_install(tmp_path: Path, found: str) -> None:
    if found == "an old Python":
        old = tmp_path / "python3"
        old.write_text("#!/bin/sh\nexit 1\n")
        old.chmod(0o755)
    shell = subprocess.run(["sh", "-c", "command -v sh"], capture_output=True, text=True, check=True).stdout.strip()
    told = subprocess.run(
        [shell, ROOT / "dev", "help"], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert told.returncode == 2
    assert "Python 3.11 or newer" in told.stderr
    assert "SLUICEGATE_PYTHON" in told.stderr


def test_an_unknown_verb_is_answered_with_the_known_ones() -> None:
    told = subprocess.run([ROOT / "dev", "tset"], capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert "no verb 'tset'" in told.stderr
    assert "check [--fix]" in told.stderr
