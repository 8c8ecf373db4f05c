"""Programs on a lease of another site: isolated by default, refused everything when hostile, and gone afterwards."""

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hostile_program
import live
import pytest
from site_koalas import leases, nothing_left_of_leases
from site_pair import Pair

SECRET = "the lender's own"
LENDER = 64321  # the uid and gid of a user without privileges
ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")


def account(place: Path, confined: bool = False) -> str:
    """Make an account for a lender without privileges, known below this `connect:` only; return that.

    `confined`: the root directory is another one, so that the kernel gives the account no user namespaces.
    """
    home, shared = home_of_lender(place), place / "lyon" / "shared"
    passwd, root = place / "passwd", place / "root"
    passwd.write_text(f"{Path('/etc/passwd').read_text()}lender:x:{LENDER}:{LENDER}::{home}:/bin/sh\n")
    root.mkdir()
    shared.mkdir(mode=0o700, parents=True)
    for each in (shared, home, *home.rglob("*")):
        os.chown(each, LENDER, LENDER)
    become = f"setpriv --reuid {LENDER} --regid {LENDER} --clear-groups env HOME={home} SHELL=/bin/sh /bin/sh -c"
    steps = [f"mount --bind {passwd} /etc/passwd", f"mount --rbind / {root}"]
    script = f'{" && ".join(steps)} && exec {f"chroot {root} " if confined else ""}{become} "$0"'
    return "command:" + shlex.join(["unshare", "--mount", "/bin/sh", "-c", script])


def home_of_lender(place: Path) -> Path:
    """Make a home directory with keys, and with files of koalapy."""
    home = place / "home"
    for name in (".ssh/id_ed25519", ".koala/secret"):
        (home / name).parent.mkdir(mode=0o700, parents=True)
        (home / name).write_text(SECRET)
    return home


def namespaces_of_others() -> bool:
    """Return whether a user without privileges can make user namespaces here."""
    command = ["setpriv", "--reuid", str(LENDER), "--clear-groups", "unshare", "--user", "true"]
    return os.getuid() == 0 and subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


OTHERS = namespaces_of_others()
NO_BWRAP = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed here")
MEANS = [
    pytest.param("bwrap", marks=[NO_BWRAP, *([pytest.mark.slow] if OTHERS else [])]),
    pytest.param("unshare", marks=pytest.mark.slow),
    pytest.param(
        "another user",
        marks=pytest.mark.skipif(not OTHERS, reason="others have no user namespaces here, or none may try"),
    ),
]


@pytest.fixture(scope="module", params=MEANS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Two sites. The lender's account is this one, or one without privileges, which lends as it is by default."""
    other = request.param == "another user"
    with tempfile.TemporaryDirectory(prefix="kl", dir="/var/tmp") as root:
        place = Path(root)
        place.chmod(0o755)
        lend: dict[str, Any] = {} if other else {"isolation": request.param}
        connect = account(place) if other else f"command:env HOME={home_of_lender(place)} /bin/sh -c"
        lend["visible"] = [str(place / "lyon" / "shared")]  # which shows nothing of koalapy's nevertheless
        made = Pair(place, {"connect": connect}, processors=6, **lend)
        (made.lyon.root / "secret").write_text(SECRET)
        try:
            made.link()
            yield made
        finally:
            made.stop()


def processes_of(words: str) -> list[int]:
    """The processes of this machine with these words in their command line."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                command = (process / "cmdline").read_bytes()
            except OSError:
                continue  # it has ended meanwhile
            found += [int(process.name)] if words.encode() in command else []
    return found


def test_a_hostile_program_of_a_borrower_is_refused_everything_and_nothing_of_it_survives(pair: Pair) -> None:
    delft, lyon = pair.both
    shutil.copy(hostile_program.__file__, delft.work / "hostile_program.py")
    relays = [str(each) for each in lyon.root.glob("shared/*/relay.*.json")]
    assert relays
    relays.append("../../relay.lyon~1.json")  # of the KCM on the lease
    home = lyon.root.parent / "home"
    other, gate = pair.holding("echo private > private;")
    (private,) = lyon.root.glob("shared/**/private")
    (leased,) = lyon.root.glob("shared/*/*/work/lease")
    owned = [str(home), f"{home}/.ssh", f"{home}/.koala", str(leased), str(private.parent)]
    facts = {
        "secrets": [
            *(str(lyon.root / "secret"), f"{home}/.ssh/id_ed25519", f"{home}/.koala/secret", str(private)),
            *(*relays, str(lyon.grid_file)),
        ],
        "directories": [*owned, str(lyon.root), str(lyon.root / "shared"), "/root", "/home", "/run"],
        "writes": [*owned, "/", "/usr", "/etc", "/var", str(lyon.root), str(lyon.root / "shared"), "/dev/pts", "/sys"],
        "pids": [os.getpid(), lyon("status", "--json").document["pid"], *processes_of("recv(1)")],
        "batch": [],
    }
    assert len(facts["pids"]) >= 3
    script = f"exec python3 hostile_program.py '{json.dumps(facts)}'"
    job = delft.submit(
        live.sh(script, 3, walltime="1m", launch="once"),
        stage_in=["hostile_program.py"], stage_out=["leak", "leaks/.*", "leaks/.ssh/id_ed25519"],
    )  # fmt: skip
    ended = delft.end(job)
    result = json.loads(delft("logs", job).out)
    assert len(result) >= 50
    assert {key: value for key, value in result.items() if value[0] != "refused"} == {}
    assert not processes_of(hostile_program.OUTLIVES)
    assert private.read_text() == "private\n"
    gate.open()
    assert delft.end(other)["state"] == "done"
    assert not (delft.work / "leak").exists()
    assert "leak" in str(ended["reason"]), ended
    assert not (delft.work / "leaks").exists()
    assert ".koala" not in str(ended["reason"]), "the names in the lender's home directory"
    pair.idle()


@pytest.mark.slow
def test_an_isolated_job_on_a_lease_survives_killed_koalads_of_both_sides(pair: Pair) -> None:
    job, gate = pair.holding(stage_out=["made"])
    for koala in pair.both:
        koala.kill()
        assert koala("up").status == 0
    gate.open()
    ended = pair.delft.end(job)
    assert (ended["state"], ended["completion_failures"]) == ("done", 0), ended
    assert (pair.delft.work / "made").read_text() == "made\n"
    assert gate.begun == 1
    pair.idle()


def test_an_isolated_lease_that_is_taken_back_leaves_nothing_and_the_job_runs_again(pair: Pair) -> None:
    job, gate = pair.holding(f"setsid sh -c 'trap : TERM HUP INT; sleep {hostile_program.OUTLIVES}; :' &")
    first = processes_of(hostile_program.OUTLIVES)
    assert first
    (lent,) = leases(pair.lyon)
    assert pair.lyon("leases", "end", lent["name"]).status == 0
    gate.wait_for(2)
    assert not {*first} & {*processes_of(hostile_program.OUTLIVES)}
    gate.open()
    ended = pair.delft.end(job)
    assert (ended["state"], ended["completion_failures"]) == ("done", 0), ended
    assert not processes_of(hostile_program.OUTLIVES)
    pair.idle()


@ROOT
def test_a_lender_whose_nodes_cannot_isolate_lends_nothing_and_both_sides_give_the_reason() -> None:
    """Its nodes are a root directory of their own, in which the kernel gives nobody user namespaces."""
    with tempfile.TemporaryDirectory(prefix="kl", dir="/var/tmp") as root:
        place = Path(root)
        place.chmod(0o755)
        pair = Pair(place, {"connect": account(place, confined=True)})
        try:
            pair.link()
            delft, lyon = pair.both
            job = delft.submit(live.sh("exit 0", 4, walltime="2m"))
            why = "from the site lyon: Its nodes cannot isolate programs, and it lends no others."
            delft.until(lambda: why in delft("explain", job).out)
            delft.until(lambda: pair.free() == 0)
            assert delft.job(job)["state"] == "waiting"
            assert leases(delft) == []
            log = (lyon.root / "state").rglob("koalad.log")
            (refused,) = [each for path in log for each in path.read_text().splitlines() if "lease_refused" in each]
            assert "Programs cannot be isolated on the nodes" in refused
            assert "bwrap" in refused
            assert "unshare" in refused
            lyon.until(lambda: nothing_left_of_leases(lyon))
        finally:
            pair.stop()


def written(name: str) -> set[Path]:
    """Return the directories of koalapy with a file of this name. Those of other tests come and go meanwhile."""
    tops = Path("/tmp").glob("koala-*")
    return {Path(folder) for top in tops for folder, _, files in os.walk(top) if name in files}


@pytest.mark.parametrize("forced", [True, False])
def test_nothing_of_an_isolated_lease_stays_on_the_node(pair: Pair, forced: bool) -> None:
    """Also if the lease is ended while a program runs, which has written into its temporary directory."""
    name = os.urandom(8).hex()
    job, gate = pair.holding(f"echo kept > /tmp/{name};")
    made = written(name)
    addresses = [json.loads(each.read_text()) for each in pair.lyon.root.glob("shared/**/allocations/**/server.json")]
    made |= {Path(each["socket"]).parent for each in addresses}
    assert len(made) >= 2, "of the program, and of the queue"
    if forced:
        (lent,) = leases(pair.lyon)
        assert pair.lyon("leases", "end", lent["name"], "--force").status == 0
        gate.wait_for(2)
        made |= written(name)
    gate.open()
    assert pair.delft.end(job)["state"] == "done"
    pair.idle()
    pair.lyon.until(lambda: not [each for each in made if each.exists()])


def test_a_lease_that_writes_more_than_it_may_ends_with_the_reason() -> None:
    with tempfile.TemporaryDirectory(prefix="kl", dir="/var/tmp") as root:
        place = Path(root)
        pair = Pair(place, processors=6, isolation="auto", disk="20M")
        try:
            pair.link()
            delft, lyon = pair.both
            script = "head -c 50000000 /dev/zero > much; sleep 1000"
            job = delft.submit(live.sh(script, 3, walltime="2m", launch="once"), retry_on=[])
            ended = delft.end(job)
            assert ended["state"] == "failed", ended
            assert ended["components"][0]["cluster"] == "lyon~1"
            why = "on the disk there, and may have 20"
            delft.until(lambda: why in delft("leases", "--all", "--json").out)
            assert why in lyon("leases", "--all", "--json").out
            small = delft.submit(live.sh("head -c 1000000 /dev/zero > little", 3, walltime="2m"))
            assert delft.end(small)["state"] == "done"
            pair.idle()
        finally:
            pair.stop()
