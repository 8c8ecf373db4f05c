"""Stage in: files are found, refused, and fixed in one version."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from koalapy.model.errors import RequestError
from koalapy.model.identity import JobId
from koalapy.model.request import ComponentRequest, Request
from koalapy.runtime.staging import versions as versions_module
from koalapy.runtime.staging.gather import gather
from koalapy.runtime.staging.input_files import InputFiles
from koalapy.runtime.staging.versions import Versions
from koalapy.runtime.transfers import Transfers


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    for name in ("a.txt", "data/x.csv", "data/deep/y.csv", "data/.hidden"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(name)
    return made


@pytest.mark.parametrize(
    ("names", "places"),
    [
        (["a.txt"], ["a.txt"]),
        (["data"], ["data", "data/.hidden", "data/deep", "data/deep/y.csv", "data/x.csv"]),
        (["data/"], ["data", "data/.hidden", "data/deep", "data/deep/y.csv", "data/x.csv"]),
        (["**/*.csv"], ["data/deep/y.csv", "data/x.csv"]),
        (["data", "data/*.csv"], ["data", "data/.hidden", "data/deep", "data/deep/y.csv", "data/x.csv"]),
        (["data/../a.txt"], ["a.txt"]),
    ],
)
def test_files_below_the_job_keep_their_relative_path(home: Path, names: list[str], places: list[str]) -> None:
    assert sorted(entry.place for entry in gather(str(home), names)) == places


def test_files_from_elsewhere_are_staged_by_name_or_from_the_pattern_on(home: Path, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    found = {entry.place for entry in gather(str(tmp_path / "job"), ["../home/a.txt", str(home / "data" / "deep")])}
    assert found == {"a.txt", "deep", "deep/y.csv"}
    assert {entry.place for entry in gather(str(tmp_path / "job"), [f"{home}/*/deep/*.csv"])} == {"data/deep/y.csv"}


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["none"], "no_such_file"),
        (["*.none"], "no_match"),
        (["none/*"], "no_match"),
        (["a.txt", "../other/a.txt"], "staged_twice"),
        (["a.txt/x"], "no_such_file"),
        (["links"], "bad_link"),
        (["pipe"], "no_plain_file"),
    ],
)
def test_a_file_that_cannot_be_staged_is_refused(home: Path, tmp_path: Path, names: list[str], code: str) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").touch()
    (home / "links").mkdir()
    (home / "links" / "out").symlink_to(tmp_path / "other")
    os.mkfifo(home / "pipe")
    with pytest.raises(RequestError) as refused:
        gather(str(home), names)
    assert refused.value.reason.code == code
    assert refused.value.reason.advice


def test_an_explicit_name_may_be_a_link_to_anywhere(home: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "z").write_text("z")
    (home / "elsewhere").symlink_to(tmp_path / "other")
    assert [entry.place for entry in gather(str(home), ["elsewhere"])] == ["elsewhere", "elsewhere/z"]
    with pytest.raises(RequestError, match="leads out"):
        gather(str(home), ["else*"])


# ---- one version


def request(home: Path, *names: str) -> Request:
    return Request(
        name="t", components=(ComponentRequest(processors=1, executable="x"),), stage_in=names, directory=str(home)
    )


def fix_version(versions: Versions, home: Path, name: str) -> Any:
    entries = versions.entries(name)
    assert entries is not None
    return versions.fix(name, entries, lambda size: None)


def test_a_version_is_hashed_once_and_kept_across_restarts(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it is hashed, a file is read only to send it."""
    versions = Versions(tmp_path / "state")
    name = versions.keep(gather(str(home), ["a.txt", "data"]))
    first = fix_version(versions, home, name)
    (home / "a.txt").write_text("of another version")
    assert fix_version(versions, home, name) == first
    assert fix_version(Versions(tmp_path / "state"), home, name) == first
    assert Versions(tmp_path / "state").keep(gather(str(home), ["a.txt", "data"])) != name


@pytest.mark.parametrize(("change", "code"), [("write", "changed_file"), ("remove", "vanished_file")])
def test_a_file_that_changed_since_its_submission_is_refused(
    home: Path, tmp_path: Path, change: str, code: str
) -> None:
    versions = Versions(tmp_path / "state")
    name = versions.keep(gather(str(home), ["a.txt"]))
    if change == "write":
        (home / "a.txt").write_text("longer than it was")
    else:
        (home / "a.txt").unlink()
    with pytest.raises(RequestError) as refused:
        fix_version(versions, home, name)
    assert refused.value.reason.code == code
    assert str(home / "a.txt") in refused.value.reason.message


def test_concurrent_requests_hash_a_version_once(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = Versions(tmp_path / "state")
    name = versions.keep(gather(str(home), ["data"]))
    hashed: list[int] = []
    real = versions_module._hashed
    monkeypatch.setattr(versions_module, "_hashed", lambda *given: hashed.append(1) or real(*given))  # type: ignore[func-returns-value]
    askers = [threading.Thread(target=lambda: fix_version(versions, home, name)) for _ in range(8)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert hashed == [1]


def test_a_snapshot_records_the_files_of_a_job(home: Path, tmp_path: Path) -> None:
    input_files = InputFiles(tmp_path / "state")
    taken = input_files.snapshot(request(home, "data"))
    assert taken.files
    assert input_files.snapshot(request(home, "data")) == taken
    assert input_files.snapshot(request(home)) == request(home)
    with pytest.raises(RequestError, match="cannot be found"):
        input_files.snapshot(request(home, "none"))


# ---- progress


def test_progress_counts_the_bytes_at_the_cluster() -> None:
    transfers = Transfers()
    with transfers.open(JobId(7), 0, "vu", "in", lambda: None) as transfer:
        transfer.begin("sending", 2, 100)
        transfer.there(40)
        transfer.add(10)
        transfer.file("x")
        [found] = transfers.of([JobId(7)])[JobId(7)]
        assert (found["bytes_moved"], found["bytes"], found["file"]) == (50, 100, "x")
        assert found["bytes_per_second"] > 0
    assert transfers.of([JobId(7)]) == {}


def test_a_pattern_for_which_too_much_would_be_looked_at_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        (tmp_path / str(number)).touch()
    monkeypatch.setattr("koalapy_adapters.trees.MOST_ENTRIES", 10)
    with pytest.raises(RequestError, match="More than 10 entries would have to be looked at"):
        gather(str(tmp_path), ["*"])
