"""Where a run's files are, as its run file names them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stillery.errors import UserError
from stillery.jobs.config import run_paths
from stillery.jobs.config.run_paths import comparable, machine_paths, read_paths, written_paths


def values(**paths: object) -> dict[str, object]:
    return {"job": "distill"} | {name: str(path) for name, path in paths.items()}


def round_trip(folder: Path, **paths: object) -> tuple[dict[str, object], dict[str, object]]:
    """What is written, and what is read back of it."""
    written = written_paths(values(**paths), folder)
    return written, read_paths(written, folder / "run.toml")


def test_every_path_is_written_from_the_folder_on(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for folder in ("teacher", "out", "..odd"):
        (project / folder).mkdir(parents=True)
    (project / "d.csv").touch()
    paths = {"teacher": project / "teacher", "data": project / "d.csv", "data_dir": project / "..odd",
             "ild_data": project / "out", "init_from": "org/name", "ild_teacher": "minilm-l6"}  # fmt: skip
    written, again = round_trip(project / "out", **paths)
    assert written == values(
        paths="relative to this file", teacher="../teacher", data="../d.csv", data_dir="../..odd", ild_data="./.",
        init_from="org/name", ild_teacher="minilm-l6",
    )  # fmt: skip
    assert list(written)[:2] == ["job", "paths"]
    assert again == values(**paths)
    written, again = round_trip(project, data_dir=project / "..odd")
    assert written["data_dir"] == "./..odd" and again["data_dir"] == str(project / "..odd")


def test_links_are_followed_where_that_is_nearer(tmp_path: Path) -> None:
    disk, project = tmp_path / "disk" / "store", tmp_path / "project"
    disk.mkdir(parents=True)
    (disk / "a1b2").touch()
    (project / "out").mkdir(parents=True)
    (project / "d.csv").symlink_to(disk / "a1b2")
    (project / "link").symlink_to(project / "out")
    # A file that is a link of the project's own is named as it is, so that it keeps its suffix and may lead elsewhere.
    written, again = round_trip(project / "link", data=project / "d.csv")
    assert written["data"] == "../d.csv" and again["data"] == str(project / "d.csv")
    # Seen from where a linked folder really is, the nearest way leads there.
    (tmp_path / "home").symlink_to(project)
    written, again = round_trip(project / "out", data=tmp_path / "home" / "d.csv", data_dir=tmp_path / "home" / "out")
    assert written["data_dir"] == "./." and Path(str(again["data"])).samefile(disk / "a1b2")
    # Behind a link, `..` is not the folder that the link is in.
    (disk / "d.csv").touch()
    (project / "away").symlink_to(disk)
    written, _ = round_trip(project / "out", data=project / "away" / ".." / "store" / "d.csv")
    assert (project / "out" / str(written["data"])).samefile(disk / "d.csv")


def test_what_shares_nothing_but_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, shared, out = tmp_path / "home" / "me", tmp_path / "shared", tmp_path / "scratch" / "out"
    for folder in (home / "teacher", shared, out):
        folder.mkdir(parents=True)
    (shared / "d.csv").touch()
    # As if the folder of these tests were the root.
    found = run_paths._common
    monkeypatch.setattr(run_paths, "_common", lambda *two: one if (one := found(*two)) != tmp_path else None)
    monkeypatch.setenv("HOME", str(home))
    paths = {"teacher": home / "teacher", "data": shared / "d.csv"}
    written, without = round_trip(out, **paths)
    assert written == values(paths="relative to this file", teacher="~/teacher", data="d.csv") | {"elsewhere": ["data"]}
    assert without == values(teacher=paths["teacher"]) | {"elsewhere": {"data": "d.csv"}}
    assert machine_paths(values(**paths), out) == {"data": str(shared / "d.csv")}
    (out / "machine.toml").write_text(f'data = "{shared}/d.csv"\n')
    assert read_paths(written, out / "run.toml") == values(**paths)
    # What was written into the run file by hand since counts, not the older path beside it.
    for since in ("other.csv", "../../d.csv"):
        again = read_paths(written | {"data": since}, out / "run.toml")
        assert again["data"] in ("other.csv", str(tmp_path / "d.csv")), again
    assert found(Path("/a/b"), Path("/a/c")) == Path("/a") and found(Path("/a/b"), Path("/c")) is None


def test_what_lies_elsewhere_is_a_list_of_settings_in_files_that_can_be_read(tmp_path: Path) -> None:
    for wrong in ("data", ["weight"]):
        with pytest.raises(UserError, match=f"elsewhere is {re.escape(repr(wrong))}: list settings that are paths"):
            read_paths(values(data="d.csv") | {"elsewhere": wrong}, tmp_path / "run.toml")
    (tmp_path / "machine.toml").write_text("data = ")
    with pytest.raises(UserError, match=r"machine\.toml: cannot be read"):
        read_paths(values(data="d.csv") | {"elsewhere": ["data"]}, tmp_path / "run.toml")


def test_a_file_written_by_hand_may_name_what_lies_beside_it(tmp_path: Path) -> None:
    for name in ("d.csv", "minilm-l6"):
        (tmp_path / name).touch()
    given = {"data": "d.csv", "teacher": "minilm-l6", "ild_data": "typed.csv"}
    found = read_paths(given | {"paths": "relative to this file"}, tmp_path / "run.toml")
    assert found == given | {"data": str(tmp_path / "d.csv")}
    # Without the line a folder counts before a name, as it always did.
    found = read_paths(given, tmp_path / "run.toml")
    assert found == given | {"data": str(tmp_path / "d.csv"), "teacher": str(tmp_path / "minilm-l6")}


def test_runs_are_compared_by_where_paths_lead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").touch()
    (tmp_path / "link.py").symlink_to(tmp_path / "mine.py")
    monkeypatch.chdir(tmp_path)
    here, there = values(recipe="mine.py:build"), values(recipe=f"{tmp_path}/link.py:build")
    assert comparable(here) == comparable(there) == values(recipe=f"{tmp_path}/mine.py:build")
    assert comparable(values(recipe="given in Python", data="gone.csv")) == values(
        recipe="given in Python", data="gone.csv"
    )
