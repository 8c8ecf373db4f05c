"""The promises of `Files`, which this machine's disk and the simulated file system both keep."""

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from koalapy_adapters.files import Files
from koalapy_adapters.layout import read_json, write_json, write_whole
from koalapy_adapters.start_lock import TAKEN, VOID, StartLock, held_by, take

from koalapy.model.units import Instant
from koalapy.world.agenda import Agenda
from koalapy.world.cluster.files import Mount, SharedDirectory
from koalapy.world.random_streams import stream

OTHERS = 7  # the operations of taking a start lock, and some more


class Place:
    """A directory on some file system."""

    def __init__(self, files: Files, base: str) -> None:
        self.files, self.base = files, base
        files.make(base)

    def __call__(self, name: str) -> str:
        return f"{self.base}/{name}"


def shared_directory() -> SharedDirectory:
    agenda = Agenda(Instant(5_000_000))
    return SharedDirectory(lambda: agenda.now, stream(1, "files"))


def mount(shared: SharedDirectory, name: str = "head.1", step: Callable[[], None] = lambda: None) -> Mount:
    return Mount(shared, name, step, lambda: True)


@pytest.fixture(params=["disk", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "disk":
        return Place(Files(), str(tmp_path / "shared"))
    return Place(mount(shared_directory()), "/shared")


def test_written_data_is_read_back(place: Place) -> None:
    place.files.write(place("a"), b"one")
    place.files.write(place("a"), b"two")
    assert place.files.read(place("a")) == b"two"
    assert place.files.names(place.base) == ["a"]
    assert place.files.exists(place("a"))
    assert not place.files.is_directory(place("a"))
    assert not place.files.is_link(place("a"))


def test_a_missing_file_is_reported_as_missing(place: Place) -> None:
    missing = place("missing")
    for use in (place.files.read, place.files.unlink, place.files.links, place.files.use, place.files.modified):
        with pytest.raises(FileNotFoundError):
            use(missing)
    for use_directory in (place.files.names, place.files.remove):
        with pytest.raises(FileNotFoundError):
            use_directory(missing)
    with pytest.raises(FileNotFoundError):
        place.files.write(place("no/file"), b"")
    with pytest.raises(FileNotFoundError):
        place.files.touch(place("no/file"))
    with pytest.raises(FileNotFoundError):
        place.files.rename(missing, place("b"))
    with pytest.raises(FileNotFoundError):
        place.files.link(missing, place("b"))
    assert not place.files.exists(missing)
    assert not place.files.is_directory(missing)
    assert place.files.names(place.base) == []


def test_a_file_has_as_many_names_as_links_were_made(place: Place) -> None:
    place.files.write(place("a"), b"one")
    place.files.link(place("a"), place("b"))
    assert (place.files.links(place("a")), place.files.links(place("b"))) == (2, 2)
    with pytest.raises(FileExistsError):
        place.files.link(place("a"), place("b"))
    place.files.unlink(place("a"))
    assert place.files.links(place("b")) == 1
    assert place.files.read(place("b")) == b"one"


def test_a_rename_replaces_the_file_of_that_name(place: Place) -> None:
    place.files.write(place("a"), b"new")
    place.files.write(place("b"), b"old")
    place.files.link(place("b"), place("c"))
    place.files.rename(place("a"), place("b"))
    assert sorted(place.files.names(place.base)) == ["b", "c"]
    assert (place.files.read(place("b")), place.files.read(place("c"))) == (b"new", b"old")
    assert place.files.links(place("c")) == 1


def test_directories_are_made_with_their_parents_and_removed_with_their_contents(place: Place) -> None:
    place.files.make(place("a/b/c"))
    place.files.make(place("a/b/c"))
    place.files.write(place("a/b/x"), b"")
    assert place.files.is_directory(place("a/b"))
    assert sorted(place.files.names(place("a/b"))) == ["c", "x"]
    place.files.remove(place("a"))
    assert place.files.names(place.base) == []
    assert not place.files.exists(place("a/b/x"))


def test_a_touch_makes_a_missing_file_and_a_use_does_not(place: Place) -> None:
    place.files.touch(place("a"))
    place.files.touch(place("a"))
    assert place.files.read(place("a")) == b""
    place.files.use(place("a"))
    assert place.files.modified(place("a")) <= place.files.clock() + 1
    assert place.files.modified(place.base) <= place.files.clock() + 1


def test_a_copy_is_another_file(place: Place) -> None:
    place.files.write(place("a"), b"one")
    digest = hashlib.sha256(b"one").hexdigest()
    place.files.copy(place("a"), place("b"), 0o700, digest)
    place.files.write(place("a"), b"two")
    assert place.files.read(place("b")) == b"one"


def test_a_copy_of_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"two")
    with pytest.raises(ValueError, match="damaged"):
        Files().copy(str(tmp_path / "a"), str(tmp_path / "b"), 0o700, hashlib.sha256(b"one").hexdigest())
    assert not (tmp_path / "b").exists()


def test_unpredictable_values_have_the_requested_length_and_differ(place: Place) -> None:
    drawn = [place.files.unpredictable(16) for _ in range(20)]
    assert {len(each) for each in drawn} == {32}
    assert len(set(drawn)) == len(drawn)


def test_a_document_is_complete_or_missing(place: Place) -> None:
    assert read_json(place("a"), place.files) is None
    write_json(place("a"), {"b": 1}, place.files)
    assert read_json(place("a"), place.files) == {"b": 1}
    with pytest.raises(FileNotFoundError):
        write_whole(place("no/file"), b"", files=place.files)
    assert place.files.names(place.base) == ["a"]


def test_a_start_lock_is_won_once(place: Place) -> None:
    first, second = StartLock(TAKEN, "a wrapper"), StartLock(VOID, "a KCM")
    assert take(place.base, first, place.files) == first
    assert take(place.base, second, place.files) == first
    assert place.files.names(place.base) == ["start-lock"]


# ---- failures that only the simulated file system can have


@pytest.mark.parametrize("lost", range(3))
@pytest.mark.parametrize("at", range(OTHERS))
def test_one_of_two_takers_of_a_start_lock_wins_in_any_order_of_their_operations(at: int, lost: int) -> None:
    """The KCM revokes while the wrapper claims, at each of its operations, and replies to links are lost."""
    shared, steps, said = shared_directory(), [0], list[StartLock]()
    shared.lost_link_replies = lost

    def between() -> None:
        steps[0] += 1
        if steps[0] == at + 1:
            said.append(_insist(shared, StartLock(VOID, "a KCM"), lambda: None))

    mount(shared).make("/shared")
    said.append(_insist(shared, StartLock(TAKEN, "a wrapper"), between))
    assert len({claim.by for claim in said}) == 1
    assert held_by("/shared", mount(shared)) == said[0]
    assert len(said) == 1 + (at < steps[0])


def _insist(shared: SharedDirectory, claim: StartLock, step: Callable[[], None]) -> StartLock:
    """As all who claim do: again, where nothing may be assumed."""
    while True:
        try:
            return take("/shared", claim, mount(shared, claim.by, step))
        except OSError:
            continue


def test_a_full_disk_refuses_new_data_and_keeps_the_old() -> None:
    shared = shared_directory()
    files = mount(shared)
    files.make("/shared")
    files.write("/shared/a", b"one")
    shared.full = True
    writes: list[Callable[[], None]] = [lambda: files.write("/shared/b", b""), lambda: files.make("/shared/c")]
    for write in writes:
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as error:
            write()
        assert error.value.errno == errno.ENOSPC
    assert files.read("/shared/a") == b"one"
    shared.mend()
    files.write("/shared/b", b"")


def test_every_operation_on_an_unreachable_directory_fails() -> None:
    shared = shared_directory()
    files = mount(shared)
    files.make("/shared")
    shared.lose()
    for use in (files.names, files.read, files.touch, files.remove, files.make):
        with pytest.raises(OSError, match=r".+") as error:
            use("/shared")
        assert error.value.errno in (errno.ESTALE, errno.EIO, errno.ENOENT)
    assert not files.exists("/shared")


def test_a_damaged_exit_record_is_no_document() -> None:
    shared = shared_directory()
    files = mount(shared)
    files.make("/shared/k1")
    shared.spoil_record("k1")
    write_json("/shared/k1/record.json", {"phase": "ended"}, files)
    with pytest.raises(ValueError, match=r".+"):
        read_json("/shared/k1/record.json", files)
    write_json("/shared/k1/record.json", {"phase": "ended"}, files)
    assert read_json("/shared/k1/record.json", files) == {"phase": "ended"}
