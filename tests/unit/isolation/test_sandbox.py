"""An isolated program's view, the command that each method needs for it, and the message of a node without any."""

import json
import os
from pathlib import Path

import pytest
from koalapy_adapters.isolation import options, probe, sandbox, start_command, view

from koalapy.model.request import Isolate

WORK, PRIVATE, PUSHED = "/home/me/.koala/i/k1/work", "/tmp/koala-1", "/home/me/.koala/bin/f.pyz"
PLACE = view.Place(WORK, PRIVATE, PUSHED, ["/opt"])
OWN = ["python3", "-I", "-S", PUSHED]
COMMAND = [*OWN, "inside"]
HOSTS = {"/usr": "directory", "/etc": "directory", "/bin": "->usr/bin", "/opt": "directory", PUSHED: "file"}


def node(**more: str) -> view.Node:
    """A node with these further paths."""
    found = HOSTS | {"/" + name.replace("_", "/"): kind for name, kind in more.items()}
    return view.Node(lambda path: found.get(path, ""), lambda path: path, ["/usr"], ["/home/me"])


def seen(place: view.Place = PLACE, **more: str) -> dict[str, view.Mount]:
    return {each.target: each for each in view.mounts(place, node(**more))}


def test_it_sees_the_system_what_is_visible_and_its_own_directory_only() -> None:
    found = seen()
    writable = [target for target, each in found.items() if each.kind == view.WRITABLE]
    assert writable == ["/tmp", WORK]
    assert found["/tmp"].source == f"{PRIVATE}/tmp"
    read_only = {target for target, each in found.items() if each.kind == view.READ_ONLY}
    rendezvous = os.path.dirname(WORK) + "/rendezvous"
    assert read_only == {"/usr", "/etc", "/opt", "/etc/passwd", "/etc/group", PUSHED, PRIVATE, rendezvous}
    assert found["/bin"] == view.Mount(view.LINK, "/bin", "usr/bin")


def test_a_directory_comes_before_what_is_mounted_below_it() -> None:
    targets = list(seen())
    for later, target in enumerate(targets):
        assert all(not each.startswith(target + "/") for each in targets[:later])


def test_what_is_visible_shows_neither_home_nor_the_shared_directory_again() -> None:
    found = seen(PLACE._replace(visible=["/home"]), home="directory")
    assert found["/home"].kind == view.READ_ONLY
    assert found["/home/me"].kind == view.HIDDEN
    assert found["/home/me/.koala"].kind == view.HIDDEN if "/home/me/.koala" in found else True
    shared = seen(view.Place("/scratch/koala/i/k1/work", PRIVATE, PUSHED, ["/scratch"]), scratch="directory")
    assert shared["/scratch/koala"].kind == view.HIDDEN


def test_what_is_visible_shows_a_lease_nothing_of_the_lenders_shared_directory() -> None:
    lease = "/scratch/koala/i/k1/work/lease/.koala"
    found = seen(view.Place(f"{lease}/j/k2/work", PRIVATE, PUSHED, ["/scratch"]), scratch="directory")
    assert found["/scratch/koala"].kind == view.HIDDEN
    below = [target for target, each in found.items() if target.startswith("/scratch/koala/")]
    assert below == [f"{lease}/j/k2/rendezvous", f"{lease}/j/k2/work"]
    pushed = "/scratch/koala/bin/f"
    place = view.Place(f"{lease}/j/k2/work", PRIVATE, pushed, ["/scratch/koala"])
    named = seen(place, scratch_koala="directory", scratch_koala_bin_f="file")
    assert (named["/scratch/koala"].kind, named[pushed].kind) == (view.HIDDEN, view.READ_ONLY)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (f"{WORK}/tool", True), ("/usr/bin/true", True), ("/opt/tool", True), (PUSHED, True), ("/home/me/tool", False),
        ("/etc/passwd", False), ("/tmp/tool", False), ("/srv/tool", False), ("/optional/tool", False),
    ],
)  # fmt: skip
def test_an_executable_must_be_among_what_it_sees(path: str, shown: bool) -> None:
    assert view.shows(PLACE, node(), path) is shown


def test_the_command_of_bwrap() -> None:
    mounts = [
        view.Mount(view.READ_ONLY, "/usr", "/usr"),
        view.Mount(view.LINK, "/bin", "usr/bin"),
        view.Mount(view.HIDDEN, "/home/me"),
        view.Mount(view.PROC, "/proc"),
        view.Mount(view.DEV, "/dev"),
        view.Mount(view.WRITABLE, WORK, WORK),
    ]
    assert start_command.argv(options.BWRAP, mounts, WORK, OWN, COMMAND) == [
        "bwrap", "--unshare-user-try", "--unshare-ipc", "--unshare-pid", "--as-pid-1", "--die-with-parent",
        "--new-session", "--cap-drop", "ALL",
        "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--tmpfs", "/home/me", "--proc", "/proc",
        "--dev", "/dev", "--bind", WORK, WORK, "--remount-ro", "/", "--remount-ro", "/home/me", "--chdir", WORK,
        "--", *COMMAND,
    ]  # fmt: skip


def test_the_command_of_unshare() -> None:
    mounts = [view.Mount(view.READ_ONLY, "/usr", "/usr"), view.Mount(view.PROC, "/proc")]
    argv = start_command.argv(options.UNSHARE, mounts, WORK, OWN, COMMAND)
    assert argv[: len(OWN) + 1] == [*OWN, "unshare"]
    assert [view.Mount(*each) for each in json.loads(argv[len(OWN) + 1])] == mounts
    assert argv[len(OWN) + 2 :] == [WORK, *COMMAND]


def test_options_pass_through_an_environment_and_nothing_is_asked_without_them() -> None:
    asked = options.Isolation(options.AUTO, ["/opt", "/sw"])
    assert options.asked(asked.variables()) == asked
    assert asked.methods == [options.BWRAP, options.UNSHARE]
    assert options.Isolation(options.UNSHARE).methods == [options.UNSHARE]
    assert options.asked({}) is None
    assert options.asked({options.VARIABLE: options.NONE}) is None


def test_both_sides_have_the_same_words() -> None:
    assert [each.value for each in Isolate] == [options.NONE, options.AUTO, *options.METHODS]


def test_the_program_gets_nothing_of_the_allocation_around_it(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    built = sandbox.build(options.Isolation(options.BWRAP), str(tmp_path / "k1"), str(tmp_path / "private"), OWN)
    outer_env = {
        "KOALA_ALLOCATION_OUTER": "{}",
        "KOALA_ALLOCATION_ENDS": "1",
        "KOALA_JOB_ID": "7",
        "TMPDIR": "/scratch",
    }
    inside = built.inside(outer_env)
    assert inside == {"KOALA_JOB_ID": "7", "TMPDIR": "/tmp", "KOALA_HOSTS": str(tmp_path / "private" / "hosts")}
    accounts = (tmp_path / "private" / "passwd").read_text().splitlines()
    assert accounts[0].split(":")[2:6:3] == [str(os.getuid()), str(tmp_path / "k1" / "work")]


def test_a_node_without_the_method_gives_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "PATH", str(tmp_path))
    offer = probe.probe(options.Isolation(options.BWRAP), OWN, str(tmp_path))
    assert offer == probe.ProbeResult([], {options.BWRAP: "bwrap is not installed"})
    assert offer.why == "bwrap: bwrap is not installed"
