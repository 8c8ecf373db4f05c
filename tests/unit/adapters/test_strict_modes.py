"""Who else may change a path: each component, links followed, groups and access control lists, and real users."""

import errno
import os
import stat
import struct
from pathlib import Path

import other_users
import pytest
from connection_ends import ECHO, STARTED, ignore, read_exactly
from koalapy_adapters.connections import bootstrap
from koalapy_adapters.connections.bootstrap import Target
from koalapy_adapters.connections.command import CommandConnection
from koalapy_adapters.errors import ClusterError
from koalapy_adapters.strict_modes import Host, refusal
from other_users import ALICE, MALLORY, PROJECT, owned, run_as

from koalapy.init import survey
from koalapy.init.choosing import entry

place = other_users.place

UID, OTHER = 1000, 1001
USERS = {0: "root", UID: "alice", OTHER: "mallory"}
PRIMARY = {0: 0, UID: 500, OTHER: 501}
GROUPS = {0: "root", 500: "alice", 501: "mallory", 600: "hphys"}
MEMBERS = {0: ["root"], 500: ["alice"], 501: ["mallory"], 600: ["alice", "mallory"]}


class World(Host):
    """Directories as (owner, group, mode), links as (owner, target). What is not named is not there."""

    def __init__(self, **entries: tuple[int, int, int] | tuple[int, str]) -> None:
        self.entries: dict[str, tuple[int, int, int] | tuple[int, str]] = {"/": (0, 0, 0o755)}
        self.entries.update({"/" + name.replace("__", "/"): entry for name, entry in entries.items()})
        self.known = dict(MEMBERS)
        self.acls: dict[str, bytes] = {}

    def uid(self) -> int:
        return UID

    def lstat(self, path: str) -> os.stat_result:
        if path not in self.entries:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        entry = self.entries[path]
        if len(entry) == 2:
            return os.stat_result((stat.S_IFLNK | 0o777, 1, 1, 1, entry[0], 0, 0, 0, 0, 0))
        return os.stat_result((stat.S_IFDIR | entry[2], 1, 1, 1, entry[0], entry[1], 0, 0, 0, 0))

    def readlink(self, path: str) -> str:
        entry = self.entries[path]
        assert len(entry) == 2
        return entry[1]

    def acl(self, path: str) -> bytes:
        return self.acls.get(path, b"")

    def user(self, uid: int) -> str:
        return USERS.get(uid, str(uid))

    def group(self, gid: int) -> str:
        return GROUPS.get(gid, str(gid))

    def primary_group(self, uid: int) -> int | None:
        return PRIMARY.get(uid)

    def members(self, gid: int) -> list[str]:
        return self.known.get(gid, [])


@pytest.mark.parametrize(
    ("world", "path"),
    [
        (World(home=(0, 0, 0o755), home__alice=(UID, 500, 0o700)), "/home/alice/.koala"),
        (World(home=(0, 0, 0o755), home__alice=(UID, 500, 0o775)), "/home/alice"),
        (World(home=(0, 0, 0o755), home__alice=(UID, 500, 0o2775)), "/home/alice/.koala"),
        (World(srv=(0, 0, 0o775)), "/srv"),
        (World(tmp=(0, 0, 0o1777), tmp__koala=(UID, 500, 0o700)), "/tmp/koala"),
        (World(tmp=(0, 0, 0o1777)), "/tmp/not/yet/there"),
        (World(project=(0, 600, 0o3770), project__mine=(UID, 600, 0o2750)), "/project/mine"),
        (World(a=(0, "b/c"), b=(0, 0, 0o755), b__c=(UID, 500, 0o700)), "/a"),
        (World(a=(UID, "/b"), b=(0, 0, 0o755)), "/./a//../a/"),
    ],
    ids=["private", "0775", "2775", "root's group", "sticky", "not there", "sticky group", "link", "absolute link"],
)
def test_what_only_root_or_the_user_may_change_passes(world: World, path: str) -> None:
    assert refusal(path, world) is None


@pytest.mark.parametrize(
    ("world", "path", "component", "mended"),
    [
        (World(project=(0, 600, 0o2770)), "/project/mine", "/project", "Let root enter `chmod g-w /project`"),
        (World(p=(0, 0, 0o755), p__k=(UID, 600, 0o2775)), "/p/k", "/p/k", "Enter `chmod g-w /p/k`"),
        (World(k=(UID, 500, 0o777)), "/k", "/k", "Enter `chmod go-w /k`"),
        (World(k=(UID, 500, 0o707)), "/k/bin", "/k", "Enter `chmod o-w /k`"),
        (World(w=(OTHER, 501, 0o755), w__k=(UID, 500, 0o700)), "/w/k", "/w", "`chown alice /w`"),
        (World(tmp=(0, 0, 0o1777), tmp__k=(OTHER, 501, 0o755)), "/tmp/k", "/tmp/k", "`chown alice /tmp/k`"),
        (World(w=(OTHER, 0, 0o1777)), "/w/k", "/w", "`chown alice /w`"),
        (World(tmp=(0, 0, 0o1777)), "/tmp", "/tmp", "/tmp/koala"),
        (World(**{"a b": (UID, 600, 0o770)}), "/a b", "/a b", "`chmod g-w '/a b'`"),
        (World(a=(0, "/b/c"), b=(UID, 600, 0o770), b__c=(UID, 500, 0o700)), "/a/d", "/b", "`chmod g-w /b`"),
        (World(t=(0, 0, 0o1777), t__a=(OTHER, "/home")), "/t/a", "/t/a", "`chown -h alice /t/a`"),
        (World(a=(UID, 600, 0o770), a__b=(UID, 500, 0o700), c=(UID, "/a/b/..")), "/c/k", "/a", "`chmod g-w /a`"),
    ],
    ids=[
        "project", "2775", "0777", "others", "foreign parent", "planted", "foreign sticky", "sticky end", "blank",
        "through a link", "foreign link", "back by a link",
    ],
)  # fmt: skip
def test_what_another_user_may_change_is_refused_by_name(world: World, path: str, component: str, mended: str) -> None:
    found = refusal(path, world)
    assert found is not None
    assert found.component == component
    owner, mode = world.lstat(component).st_uid, stat.S_IMODE(world.lstat(component).st_mode)
    assert found.message.startswith(f"{component} belongs to {USERS[owner]} (")
    assert f"mode {mode:04o})" in found.message
    assert mended in found.advice


@pytest.mark.parametrize(
    ("members", "name", "private"),
    [
        (["alice"], "alice", True),
        (["alice", "root"], "alice", True),
        (["alice", "mallory"], "alice", False),
        (["mallory"], "alice", False),
        ([], "alice", True),
        ([], "users", False),
        (["alice"], "users", True),
    ],
)
def test_a_group_is_private_if_nobody_else_is_in_it(
    members: list[str], name: str, private: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the database lists nobody, the group must have the user's name."""
    world = World(k=(UID, 500, 0o770))
    world.known[500] = members
    monkeypatch.setitem(GROUPS, 500, name)
    assert (refusal("/k", world) is None) == private


def acl(*entries: tuple[int, int, int]) -> bytes:
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NOBODY = 0xFFFFFFFF
OWN, MASK, REST = (1, 7, NOBODY), (16, 7, NOBODY), (32, 0, NOBODY)


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ((2, 7, OTHER), "the user mallory"),
        ((8, 2, 600), "the group hphys"),
        ((2, 5, OTHER), None),
        ((2, 7, UID), None),
        ((8, 7, 500), None),
    ],
)
def test_an_access_control_list_behind_a_private_group(entry: tuple[int, int, int], named: str | None) -> None:
    """In the mode there is only the mask, which looks like the private group's right to write."""
    world = World(k=(UID, 500, 0o770))
    world.acls["/k"] = acl(OWN, entry, (4, 7, NOBODY), MASK, REST)
    found = refusal("/k", world)
    assert (found.message if found else None) == (
        f"/k belongs to alice (group alice, mode 0770). By its access control list {named} can write there, and so "
        "could replace what is at or below it."
        if named
        else None
    )


def test_links_that_lead_nowhere() -> None:
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        refusal("/a", World(a=(0, "b"), b=(0, "a")))
    assert refusal("/a/b", World(a=(0, "nowhere"))) is None


# ---- real files and users


def test_a_grid_file_is_written_with_a_directory_that_passes(place: Path) -> None:
    """Where the home is open to a group, and the cluster names a directory of the user's own on scratch."""
    home = owned(place / "home", ALICE, 0o2770)
    scratch = owned(place / "scratch", ALICE, 0o700, ALICE)
    environment = {"SHELL": "/bin/sh", "PATH": os.environ["PATH"], "HOME": str(home)}
    settings = [f"{name}={value}" for name, value in environment.items()]
    before = set(Path("/tmp").glob("koala-init-*"))

    def looked(*more: str) -> survey.HeadSurvey:
        argv = other_users.argv_as(ALICE, "env", "-i", *settings, *more, "sh", "-c", 'cd /; exec sh -c "$0"')
        connection = CommandConnection(argv)
        connection.python = other_users.PYTHON
        return survey.survey_head(connection)

    seen = looked(f"SCRATCH={scratch}")
    assert seen.reason is None
    written = entry("here", "local:", {}, seen)
    assert written.settings["shared"] == f"{scratch}/koala"
    assert f"{home} belongs to" in " ".join(written.comments)
    assert start(Path(str(written.settings["shared"]))) == STARTED
    refused_place = looked(f"WORK={home}")
    assert refused_place.reason is not None
    assert f"`chmod g-w {home}`" in refused_place.reason.advice
    assert set(Path("/tmp").glob("koala-init-*")) == before


def test_the_mask_of_an_access_control_list_is_seen_in_the_mode(tmp_path: Path) -> None:
    """acl(5): so an entry that lets another user write can never hide behind a mode without the group's w."""
    place = tmp_path / "k"
    place.mkdir(mode=0o700)
    try:
        os.setxattr(place, "system.posix_acl_access", acl(OWN, (2, 7, OTHER), (4, 0, NOBODY), MASK, REST))
    except OSError as error:
        pytest.skip(f"no access control lists on this file system: {error}")
    assert stat.S_IMODE(place.stat().st_mode) == 0o770
    found = refusal(str(place))
    assert found is not None
    assert f"`chmod g-w {place}`" in found.advice
    place.chmod(0o750)
    assert refusal(str(place)) is None


def start(shared: Path, uid: int = ALICE) -> bytes:
    """Return the output of the program that is pushed to a head node in this user's name."""
    target = Target(str(shared), other_users.PYTHON)
    channel = bootstrap.start(other_users.connection_of(uid, shared.parent), ECHO, target, ignore)
    try:
        return read_exactly(channel, len(STARTED))
    finally:
        channel.close()


def refused(shared: Path) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        start(shared)
    return caught.value


@pytest.mark.parametrize("mode", [0o2775, 0o2770, 0o777])
def test_a_member_of_the_group_cannot_plant_a_program(place: Path, mode: int) -> None:
    """Mallory exchanges `bin` for a directory with a program of the same name, which any start would run."""
    shared = owned(place / "direct", ALICE, 0o2755)
    assert start(shared) == STARTED
    shared.chmod(mode)
    before = refused(shared)
    plant = 'cd "$0" && mv bin stolen && mkdir bin && echo "print(666)" > bin/"$1" && chmod -R a+rwX bin'
    planted = run_as(MALLORY, "sh", "-c", plant, str(shared), f"{ECHO.digest}.pyz")
    assert planted.returncode == 0, planted.stderr
    after = refused(shared)
    for error in (before, after):
        assert error.code == "shared_open_to_others"
        assert f"{shared} belongs to {ALICE} (group {PROJECT}, mode {mode:04o})." in error.message
        assert f"`chmod g{'o' if mode & 2 else ''}-w {shared}`" in error.advice
    shared.chmod(0o2755)
    assert f"{shared}/bin belongs to {MALLORY}" in refused(shared).message


def test_a_parent_that_a_group_may_write_is_refused_before_anything_is_made(place: Path) -> None:
    project = owned(place / "project", 0, 0o2770)
    error = refused(project / "koala")
    assert f"{project} belongs to root" in error.message
    assert f"Let root enter `chmod g-w {project}`" in error.advice
    assert not list(project.iterdir())


def test_a_parent_of_another_user_is_refused(place: Path) -> None:
    above = owned(place / "w", MALLORY, 0o755)
    shared = owned(above / "k", ALICE, 0o700)
    assert f"{above} belongs to {MALLORY}" in refused(shared).message


def test_a_sticky_parent_passes(place: Path) -> None:
    project = owned(place / "project", 0, 0o3770)
    assert start(project / "mine") == STARTED
    assert (project / "mine").stat().st_mode & 0o777 == 0o700


def test_a_file_that_another_user_left_is_not_run(place: Path) -> None:
    """It is what it should be, but its owner can change it at any time."""
    shared = owned(place / "k", ALICE, 0o700, ALICE)
    assert start(shared) == STARTED
    pushed = shared / "bin" / f"{ECHO.digest}.pyz"
    os.chown(pushed, MALLORY, MALLORY)
    assert start(shared) == STARTED
    assert pushed.stat().st_uid == ALICE


def test_a_directory_that_its_owner_may_not_write(place: Path) -> None:
    """Return whether `bin` is there or not."""
    shared = owned(place / "k", ALICE, 0o755, ALICE)
    for _ in range(2):
        shared.chmod(0o555)
        assert refused(shared).code == "directory_not_writable"
        shared.chmod(0o755)
        assert start(shared) == STARTED
