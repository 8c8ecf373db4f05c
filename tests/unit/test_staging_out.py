"""What is staged out: who brings what where, and what no cluster can make koalad write."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koalapy_adapters.trees import DIRECTORY, FILE, REFUSED, Found

from koalapy.model.commands import CollectOutput
from koalapy.model.errors import KoalaError, RequestError, SiteError
from koalapy.model.identity import AttemptId, JobId
from koalapy.runtime.collecting import landing
from koalapy.runtime.collecting.moving import _unpacked
from koalapy.runtime.collecting.plan import Item, Plan, entries, plan

FIRST, SECOND = AttemptId(JobId(7), 0, 1), AttemptId(JobId(7), 1, 2)


def file(path: str, size: int = 1) -> Found:
    return Found(path, FILE, size, 0o644, 5)


def directory(path: str) -> Found:
    return Found(path, DIRECTORY, 0, 0o755)


def planned(paths: list[str], first: list[Found], second: list[Found], to: dict[str, str] | None = None) -> Plan:
    command = CollectOutput(
        job=JobId(7), sources=(), paths=tuple(paths), directory="/home/me", to=tuple((to or {}).items())
    )
    return plan(command, [("vu", FIRST, first), ("delft", SECOND, second)])


def targets(found: Plan) -> dict[str, int]:
    """Which component's file goes where."""
    return {str(item.target): item.attempt.component for item in found.items}


def test_of_one_place_the_first_component_s_counts_and_the_other_is_told() -> None:
    found = planned(
        ["out", "x"], [directory("out"), file("out/a")], [directory("out"), file("out/a"), file("out/b"), file("x")]
    )
    assert targets(found) == {"/home/me/out": 0, "/home/me/out/a": 0, "/home/me/out/b": 1, "/home/me/x": 1}
    assert found.notes == ("Not brought, since an earlier component's file has the same place: out/a of component 1.",)
    assert found.missing == ()


def test_a_place_of_its_own_keeps_all_of_them() -> None:
    found = planned(["a"], [file("a")], [file("a")], {"a": "{job}/{component}-{cluster}"})
    assert targets(found) == {"/home/me/7/0-vu/a": 0, "/home/me/7/1-delft/a": 1}
    assert targets(planned(["a"], [file("a")], [], {"a": "/scratch"})) == {"/scratch/a": 0}


def test_a_file_does_not_lie_below_another_s_file() -> None:
    found = planned(["a"], [file("a")], [directory("a"), file("a/b")])
    assert targets(found) == {"/home/me/a": 0}
    assert "a/b of component 1" in found.notes[0]


def test_what_nobody_left_is_missing_if_it_is_plain_and_told_if_it_is_a_pattern() -> None:
    refused = Found("pipe", REFUSED, why="is neither a plain file nor a directory")
    found = planned(["none", "no*", "pipe"], [refused], [])
    assert found.missing == ("none", "pipe (is neither a plain file nor a directory)")
    assert found.notes == ("Nothing matches no*.",)


HOSTILE = ["../x", "/etc/passwd", "a/../../x", "a//b", "", ".", "..", "x\0y", ".bashrc", "other", "x/result"]


@pytest.mark.parametrize("path", HOSTILE)
def test_no_cluster_can_offer_what_was_not_asked_for(path: str) -> None:
    with pytest.raises(KoalaError) as refused:
        planned(["result*"], [file(path)], [])
    assert refused.value.reason.code == "bad_listing"
    with pytest.raises(KoalaError):
        planned(["result*"], [Found(path, REFUSED, why="is a link")], [])


@given(st.text())
def test_whatever_is_offered_stays_below_the_job(path: str) -> None:
    try:
        found = planned(["**", "x"], [file(path)], [])
    except KoalaError:
        return
    for item in found.items:
        assert os.path.normpath(item.target).startswith("/home/me/")


@pytest.mark.parametrize(
    "line", [b"{}", b"[1]", b"[]", b'["a","file",-1,0,0,""]', b'["a","link",0,0,0,""]', b"\xff", b'[1,"file",0,0,0,""]']
)
def test_what_is_no_list_is_refused(line: bytes) -> None:
    with pytest.raises(SiteError):
        list(entries([line + b"\n"]))


def test_a_list_may_be_cut_anywhere_and_is_not_endless() -> None:
    lines = b"".join(json.dumps(list(file(f"f\n{n}"))).encode() + b"\n" for n in range(30))
    cut = [lines[at : at + 7] for at in range(0, len(lines), 7)]
    assert [found.path for found in entries(cut)] == [f"f\n{n}" for n in range(30)]
    with pytest.raises(RequestError, match="More than"):
        list(entries([lines] * 4000))


@settings(max_examples=50)
@given(st.lists(st.one_of(st.none(), st.binary(max_size=50)), max_size=10), st.integers(1, 40))
def test_small_files_come_out_of_a_stream_however_it_is_cut(contents: list[bytes | None], cut: int) -> None:
    stream = b"".join(
        b"null\n" if data is None else json.dumps([len(data), 0o600, 3]).encode() + b"\n" + data for data in contents
    )
    pieces = iter([stream[at : at + cut] for at in range(0, len(stream), cut)])
    assert [data if facts else None for facts, data in _unpacked(pieces)] == contents


def test_a_stream_that_breaks_off_is_said() -> None:
    with pytest.raises(SiteError, match="broke off"):
        list(_unpacked(iter([b"[5,384,0]\nab"])))


# ---- landing


def item(base: Path, path: str, kind: Any = file) -> Item:
    return Item("vu", FIRST, kind(path), base, base / path)


def test_nothing_is_made_through_a_link_that_leads_out(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(RequestError) as refused:
        landing.make_directories([item(tmp_path / "home", "fine/x"), item(tmp_path / "home", "link/deep/x")])
    assert refused.value.reason.code == "leads_out"
    assert os.listdir(tmp_path / "home") == ["link"]
    assert os.listdir(tmp_path / "outside") == []


def test_a_link_to_a_place_below_the_job_is_used(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    landing.make_directories([item(tmp_path, "link/x/y")])
    assert (tmp_path / "real" / "x").is_dir()


def test_what_does_not_fit_is_said_before_anything_is_written(tmp_path: Path) -> None:
    huge = Item("vu", FIRST, file("huge", 1 << 60), tmp_path, tmp_path / "huge")
    with pytest.raises(RequestError) as refused:
        landing.check_room([huge], {})
    assert refused.value.reason.code == "no_room"
    landing.check_room([huge], {huge.target: (1 << 60) - 1})


def test_a_part_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    part = landing.part_of(item(tmp_path, "x"), "kabcde000000001")
    part.symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic"), landing.Part(part):
        pass
    with pytest.raises(OSError, match="symbolic"):
        landing.Small("kabcde000000001").write(item(tmp_path, "x"), 0o600, 0, b"theirs")
    assert (tmp_path / "precious").read_text() == "mine"


def test_modes_of_directories_leave_their_owner_in(tmp_path: Path) -> None:
    made = Item("vu", FIRST, Found("d", DIRECTORY, 0, 0o055), tmp_path, tmp_path / "d")
    landing.make_directories([made])
    landing.set_modes([made])
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o755
