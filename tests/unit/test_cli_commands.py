"""Every command of the command line keeps the rules of the set."""

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

from sluicegate.cli import commands
from sluicegate.cli.app import build, verb
from sluicegate.cli.arguments import Common
from sluicegate.cli.commands import COMMANDS, Verb
from tools import cli_reference

SECRET = ("token", "lease_token", "password")
PAGE = 78

every_command = pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)


def test_the_tuple_names_every_file_and_nothing_else() -> None:
    files = {info.name for info in pkgutil.iter_modules(commands.__path__)}
    names = [command.module.rpartition(".")[2] for command in COMMANDS]
    assert sorted(names) == sorted(files)


@every_command
def test_a_command_is_one_function_that_tells_what_it_does(command: Verb) -> None:
    module = importlib.import_module(command.module)
    public = [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    assert [name for name in public if not name.startswith("_")] == ["run"]
    text = inspect.getdoc(module.run)
    assert text is not None
    assert text.partition("\n")[0].endswith(".")
    assert f"sluicegate {command.name}" in text, "an example"
    assert max(map(len, text.splitlines())) <= PAGE, "a terminal of 80 columns would break the line a second time"


@every_command
def test_a_command_takes_the_common_options_and_no_secret(command: Verb) -> None:
    run = importlib.import_module(command.module).run
    parameters = inspect.signature(run).parameters
    assert parameters["common"].default == Common()
    assert not set(parameters) & set(SECRET)


@every_command
def test_every_argument_is_explained(command: Verb) -> None:
    for argument in verb(build(), command).assemble_argument_collection():
        if argument.parse and not argument.children:
            assert argument.parameter.help, argument.name


@every_command
def test_nothing_heavy_is_imported_before_a_command_runs(command: Verb) -> None:
    source = importlib.import_module(command.module).__file__
    assert source is not None
    light = {"cyclopts", "sluicegate"}
    for node in ast.parse(Path(source).read_text()).body:
        for name in _imported(node):
            top = name.partition(".")[0]
            ours = name.startswith(("sluicegate.cli", "sluicegate.errors"))
            assert top not in {"psycopg", "rich", "pydantic"}, name
            assert top != "sluicegate" or ours, f"{name} loads more than it needs to"
            assert top in light or top in __import__("sys").stdlib_module_names


def _imported(node: ast.stmt) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module):
            return [module or ""]
        case _:
            return []


def test_the_reference_page_is_what_the_commands_say() -> None:
    assert cli_reference.PAGE.read_text() == cli_reference.page(), "run python -m tools.cli_reference"
