"""Parses every SQL file with PostgreSQL's own grammar, bodies included, and holds function files to their form."""

import re
from collections.abc import Iterator
from pathlib import Path

from pglast import ast, parse_plpgsql, parse_sql
from pglast.parser import ParseError

ROOT = Path(__file__).resolve().parents[1]
SQL = ROOT / "src" / "sluicegate" / "sql"
LONGEST_HEADER = 5
# The parser knows no catalog, so a variable or parameter of one of our row types is checked as a record.
ROW_TYPE = re.compile(r"(\b(?:[vp]_\w+|returns)\s+)sluicegate\.\w+(?:%rowtype)?(?=\s*(?:;|:=|,|\)|\n))")
ROW_TYPES = re.compile(r"(\bv_\w+\s+)sluicegate\.\w+\[\](?=\s*(?:;|:=))")
GRANTS = re.compile(
    r"^-- grants: (none|(worker|producer|reader|admin)(, (worker|producer|reader|admin))*)$", re.MULTILINE
)


def complaints() -> str:
    """One line for each fault, empty if there is none."""
    found = []
    for path in sorted(SQL.rglob("*.sql")):
        text = path.read_text()
        faults = [*syntax_faults(text)]
        if not faults and path.is_relative_to(SQL / "functions"):
            faults = [*form_faults(path.stem, text)]
        found += [f"{path.relative_to(ROOT)}: {fault}" for fault in faults]
    return "\n".join(found)


def syntax_faults(text: str) -> Iterator[str]:
    try:
        statements = [raw.stmt for raw in parse_sql(text)]
        for statement in statements:
            if isinstance(statement, ast.CreateFunctionStmt) and _option(statement, "language") == "sql":
                parse_sql(_body(statement))
            elif isinstance(statement, ast.DoStmt):
                parse_plpgsql(_do_as_function(statement))
        parse_plpgsql(ROW_TYPES.sub(r"\1jsonb[]", ROW_TYPE.sub(r"\1record", text)))
    except ParseError as error:
        yield str(error)


def form_faults(name: str, text: str) -> Iterator[str]:
    """What style asks of a function file: one function, named for the file, with header, grants and search path."""
    functions = [raw.stmt for raw in parse_sql(text)]
    if len(functions) != 1 or not isinstance(functions[0], ast.CreateFunctionStmt):
        yield "a function file creates exactly one function, and nothing else"
        return
    function = functions[0]
    if [part.sval for part in function.funcname or ()] != ["sluicegate", name]:
        yield f"the file is named for its function, sluicegate.{name}"
    if not function.replace:
        yield "it says create or replace, since its text is applied again whenever it changed"
    header = [*_header(text)]
    if not 2 <= len(header) <= LONGEST_HEADER:
        yield f"its header has two to {LONGEST_HEADER} comment lines: promise, locks and their order, errors, grants"
    if not GRANTS.search("\n".join(header)):
        yield "its header names who may call it: -- grants: worker, producer, reader, admin or none"
    if _search_path(function) != ["sluicegate", "pg_temp"]:
        yield "it sets search_path = sluicegate, pg_temp"


def _header(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if not line.startswith("--"):
            return
        yield line


def _option(statement: ast.CreateFunctionStmt | ast.DoStmt, name: str) -> str | None:
    options = statement.options if isinstance(statement, ast.CreateFunctionStmt) else statement.args
    for option in options or ():
        if option.defname == name:
            argument = option.arg[0] if isinstance(option.arg, tuple) else option.arg
            return str(argument.sval)
    return None


def _body(statement: ast.CreateFunctionStmt) -> str:
    return _option(statement, "as") or "select 1"


def _do_as_function(statement: ast.DoStmt) -> str:
    body = _option(statement, "as") or ""
    return f"create function pg_temp.block() returns void language plpgsql as $checked$ {body} $checked$"


def _search_path(function: ast.CreateFunctionStmt) -> list[str]:
    for option in function.options or ():
        if option.defname == "set" and option.arg.name == "search_path":
            return [argument.val.sval for argument in option.arg.args]
    return []
