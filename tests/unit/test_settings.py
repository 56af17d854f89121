"""Settings: which source wins, and what each of them may say."""

import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from sluicegate.errors import InvalidArgument
from sluicegate.settings import Settings


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, an empty home, and none of our variables."""
    for name in list(os.environ):
        if name.startswith(("SLUICEGATE_", "XDG_")):
            monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def test_without_any_source_there_are_defaults(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluicegate.settings.os.geteuid", lambda: 1000)
    found = Settings.load()
    assert found.dsn is None
    assert found.data_dir == clean / "home" / ".local" / "share" / "sluicegate"
    assert found.scope == "endpoint:default"
    assert found.bindir is None
    assert found.embedded_linger == 60
    assert found.file is None
    assert set(found.origins.values()) == {"default"}


def test_root_keeps_its_data_where_other_accounts_may_go(monkeypatch: pytest.MonkeyPatch, clean: Path) -> None:
    monkeypatch.setattr("sluicegate.settings.os.geteuid", lambda: 0)
    assert Settings.load().data_dir == Path("/var/lib/sluicegate")
    monkeypatch.setenv("XDG_DATA_HOME", str(clean / "elsewhere"))
    assert Settings.load().data_dir == clean / "elsewhere" / "sluicegate"


def test_flags_win_over_environment_over_file_over_defaults(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("sluicegate.toml").write_text('dsn = "from-file"\nscope = "team:file"\nembedded_linger = 5\n')
    monkeypatch.setenv("SLUICEGATE_DSN", "from-environment")
    monkeypatch.setenv("SLUICEGATE_SCOPE", "team:environment")
    found = Settings.load(dsn="from-flag", scope=None)
    assert (found.dsn, found.scope, found.embedded_linger) == ("from-flag", "team:environment", 5)
    assert [found.origin(name) for name in ("dsn", "scope", "embedded_linger", "bindir")] == [
        "flag",
        "environment",
        "file",
        "default",
    ]
    assert found.file == clean / "work" / "sluicegate.toml"
    assert found.origin("unheard-of") == "default"


def test_an_empty_variable_means_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("sluicegate.toml").write_text('dsn = "from-file"\n')
    monkeypatch.setenv("SLUICEGATE_DSN", "")
    assert Settings.load().dsn == "from-file"


def test_the_file_in_the_working_directory_hides_the_one_of_the_user(
    clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for config in (clean / "home" / ".config", clean / "xdg"):
        (config / "sluicegate").mkdir(parents=True)
        (config / "sluicegate" / "config.toml").write_text(f'dsn = "{config.name}"\nscope = "team:user"\n')
    assert Settings.load().dsn == ".config"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(clean / "xdg"))
    assert Settings.load().dsn == "xdg"
    monkeypatch.setenv("XDG_CONFIG_HOME", "xdg-relative-is-ignored")
    assert Settings.load().dsn == ".config"
    Path("sluicegate.toml").write_text('dsn = "here"\n')
    found = Settings.load()
    assert (found.dsn, found.scope) == ("here", "endpoint:default")


def test_a_key_that_is_no_setting_is_refused_by_name() -> None:
    Path("sluicegate.toml").write_text('dsn = "x"\nscoop = "team:x"\n[queue]\nx = 1\n')
    with pytest.raises(InvalidArgument) as refused:
        Settings.load()
    assert "sets queue, scoop, which is no setting of Sluicegate" in str(refused.value)
    assert "The settings are dsn, data_dir, scope, bindir, embedded_linger, socket_dir" in str(refused.value)
    assert refused.value.field == "queue"


@pytest.mark.parametrize("key", ["file", "origins", "SCOPE"])
def test_only_settings_are_keys(key: str) -> None:
    Path("sluicegate.toml").write_text(f'{key} = "x"\n')
    with pytest.raises(InvalidArgument, match=f"sets {key}, which is no setting"):
        Settings.load()


def test_a_flag_that_is_no_setting_is_a_mistake_of_the_programmer() -> None:
    with pytest.raises(TypeError, match="Settings has no colour"):
        Settings.load(colour="red")


def test_paths_are_made_absolute_from_where_they_were_written(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = clean / "home" / ".config" / "sluicegate"
    config.mkdir(parents=True)
    (config / "config.toml").write_text('data_dir = "data"\nbindir = "~/pg/bin"\n')
    found = Settings.load()
    assert found.data_dir == config / "data"
    assert found.bindir == clean / "home" / "pg" / "bin"
    monkeypatch.setenv("SLUICEGATE_DATA_DIR", "data")
    assert Settings.load().data_dir == clean / "work" / "data"
    assert Settings.load(data_dir=Path("other")).data_dir == clean / "work" / "other"
    assert Settings.load(data_dir="/x").data_dir == Path("/x")


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("dsn", "", "has to be a text that is not empty"),
        ("dsn", "  ", "has to be a text that is not empty"),
        ("dsn", 5, "has to be a text that is not empty"),
        ("scope", "a\0b", "contains a NUL character"),
        ("data_dir", True, "has to be a text that is not empty"),
        ("data_dir", "~no-such-user/x", "whose home directory is unknown"),
        ("embedded_linger", "soon", "has to be a number of seconds between 0 and 86400, not 'soon'"),
        ("embedded_linger", -1, "has to be a number of seconds"),
        ("embedded_linger", 86_401, "has to be a number of seconds"),
        ("embedded_linger", float("nan"), "has to be a number of seconds"),
        ("embedded_linger", True, "has to be a number of seconds"),
        ("embedded_linger", [], "has to be a number of seconds"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_name(name: str, value: object, problem: str) -> None:
    given: dict[str, Any] = {name: value}
    with pytest.raises(InvalidArgument) as refused:
        Settings.load(**given)
    assert problem in str(refused.value)
    assert str(refused.value).startswith(f"--{name.replace('_', '-')} ")
    assert refused.value.field == name


def test_a_refusal_names_the_source(monkeypatch: pytest.MonkeyPatch, clean: Path) -> None:
    Path("sluicegate.toml").write_text("embedded_linger = -1\n")
    with pytest.raises(InvalidArgument, match=f"^embedded_linger in {clean}/work/sluicegate.toml has to be"):
        Settings.load()
    monkeypatch.setenv("SLUICEGATE_EMBEDDED_LINGER", "never")
    with pytest.raises(InvalidArgument, match=r"^SLUICEGATE_EMBEDDED_LINGER has to be"):
        Settings.load()
    monkeypatch.setenv("SLUICEGATE_EMBEDDED_LINGER", "0.5")
    assert Settings.load().embedded_linger == 0.5


@pytest.mark.parametrize("text", [b"dsn = ", b"dsn = 'x'\ndsn = 'y'\n", b"\xff\xfe"])
def test_a_file_that_is_not_toml_is_named(text: bytes, clean: Path) -> None:
    Path("sluicegate.toml").write_bytes(text)
    with pytest.raises(InvalidArgument, match=f"{clean}/work/sluicegate.toml is not TOML") as refused:
        Settings.load()
    assert refused.value.field == "file"


def test_a_file_that_cannot_be_read_is_named(clean: Path) -> None:
    Path("sluicegate.toml").symlink_to(clean / "missing")
    with pytest.raises(InvalidArgument, match="cannot be read: No such file or directory") as refused:
        Settings.load()
    assert f"chmod u+r {clean}/work/sluicegate.toml" in str(refused.value)


def test_a_file_of_somebody_else_is_refused(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("sluicegate.toml").write_text('dsn = "x"\n')
    mine = os.geteuid()
    monkeypatch.setattr("sluicegate.settings.os.geteuid", lambda: mine + 1)
    if mine == 0:
        assert Settings.load().dsn == "x", "root may do anything anyway"
        os.chown("sluicegate.toml", 4321, -1)
    with pytest.raises(InvalidArgument, match="belongs to another user") as refused:
        Settings.load()
    assert refused.value.field == "file"
    assert f"chown {mine + 1} {clean}/work/sluicegate.toml" in str(refused.value)


def test_a_removed_working_directory_is_no_obstacle(clean: Path) -> None:
    config = clean / "home" / ".config" / "sluicegate"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(f'data_dir = "{clean}/data"\n')
    (clean / "work").rmdir()
    assert Settings.load(bindir="/x").data_dir == clean / "data"


def test_settings_can_be_made_by_hand_and_never_show_the_dsn() -> None:
    made = Settings(dsn="postgresql://u:secret@/x")
    assert made.scope == "endpoint:default"
    assert "secret" not in repr(made)


def test_a_user_without_a_home_still_has_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr("sluicegate.settings.os.geteuid", lambda: 4321)
    assert Settings.load().data_dir == Path("/nonexistent/.local/share/sluicegate")
