"""Ways in to real head nodes: a second factor by PAM, jump hosts, stand-ins, odd login shells, a Python by `setup`."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import live
import pytest
import yaml

from koalapy.testgrid import layout

Document = dict[str, Any]
Make = Callable[[Document], Any]

PASSWORD = "correct horse"
PORT = 2222
PID = "/run/ways_in.pid"
SSHD = f"""
cat >/run/ways_in.config <<'END'
Port {PORT}
PidFile {PID}
HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile /etc/ssh/testgrid_keys
UsePAM yes
PasswordAuthentication no
PrintMotd no
%s
END
/usr/sbin/sshd -f /run/ways_in.config
until [ -s {PID} ]; do sleep 0.05; done
"""
ASKING = "KbdInteractiveAuthentication yes\nAuthenticationMethods publickey,keyboard-interactive"


@pytest.fixture
def entries(testgrid: Any) -> dict[str, Document]:
    """The clusters of the test grid's own grid file."""
    return dict(yaml.safe_load(Path(testgrid.grid_file).read_text())["clusters"])


@pytest.fixture
def koala() -> Iterator[Make]:
    """Starts a koalad over these clusters."""
    made: list[Any] = []
    with tempfile.TemporaryDirectory(prefix="kw", dir="/tmp") as place:

        def make(clusters: Document) -> Any:
            made.append(live.Koala(Path(place) / str(len(made)), clusters))
            answer = made[-1]("up")
            assert answer.status == 0, answer
            return made[-1]

        yield make
        for each in made:
            each.stop()


@pytest.fixture
def second_sshd(testgrid: Any) -> Iterator[Callable[[str, str], None]]:
    """Starts another sshd on a head node, with further lines of configuration."""
    heads: list[str] = []

    def start(head: str, lines: str = "") -> None:
        heads.append(head)
        testgrid.containers.check(head, ["bash", "-euc", SSHD % lines])

    yield start
    for head in heads:
        testgrid.containers.exec(head, ["bash", "-c", f"kill $(cat {PID}); rm -f {PID} /run/ways_in.config"])


def cut(testgrid: Any, head: str, also: str = "") -> None:
    """End all logins of the second sshd, each of which is a monitor and its child; `also` the sshd itself, if named."""
    logins = f"$(pgrep --parent $(cat {PID}))"
    inner = "$(for each in $logins; do pgrep --parent $each; done)"
    end = f"kill -9 {also} $logins {inner}; true"  # one may have ended with another by then
    script = f'logins={logins}; [ -n "$logins" ] && {{ {end}; }}'
    testgrid.containers.check(head, ["bash", "-c", script])


@pytest.fixture
def password(testgrid: Any) -> Iterator[None]:
    """The grid's user has one on alpha."""
    testgrid.containers.check("alpha", ["bash", "-c", f"echo '{layout.USER}:{PASSWORD}' | chpasswd"])
    yield
    testgrid.containers.check("alpha", ["usermod", "--password", "!", layout.USER])


def connected(grid: Any, cluster: str = "alpha") -> Document:
    """Once it is up and measured."""
    with grid.client() as client:

        def look() -> Document | None:
            (found,) = [each for each in client.clusters() if each["name"] == cluster]
            return found if found["connection"] == "up" and found["idle"] else None

        return dict(grid.until(look))


def runs(grid: Any, cluster: str, script: str, **fields: Any) -> str:
    """Return the output of a job of one process there."""
    job = grid.end(grid.submit(live.sh(script, cluster=cluster, walltime="2m", **fields)))
    assert job["state"] == "done", job["reason"]
    assert job["components"][0]["attempt"] == 1
    with grid.client() as client:
        return b"".join(client.output(job["id"])).decode()


@pytest.mark.usefixtures("password")
def test_a_second_factor_of_a_real_sshd(testgrid: Any, entries: Any, koala: Make, second_sshd: Any) -> None:
    """Asked once; after a cut asked again, while the job runs on; a wrong answer is tried once and no more."""
    second_sshd("alpha", ASKING)
    there = entries["alpha"] | {"connect": f"{entries['alpha']['connect']}:{PORT}"}
    grid = koala({"alpha": there})
    with grid.client() as client:
        asked: list[Document] = []

        def answer(*words: str) -> Callable[[Document], list[str]]:
            return lambda question: asked.append(question) or list(words[: len(question["prompts"])])  # type: ignore[func-returns-value]

        grid.until(lambda: client.logins()[0]["state"] == "login_required")
        wrong = client.login("alpha", answer("wrong"))
        assert (wrong["state"], wrong["reason"]["code"]) == ("login_required", "answer_refused")
        assert client.login("alpha", answer(PASSWORD))["state"] == "connected"
        questions = [each["prompts"] for each in asked if each["prompts"]]
        assert questions == [[{"text": "Password: ", "echo": False}]] * 2
        connected(grid)
        job = grid.submit(live.sh("sleep 4; echo outlived", cluster="alpha", walltime="2m"))
        grid.until(lambda: grid.job(job)["started_at"])
        cut(testgrid, "alpha")
        grid.until(lambda: client.logins()[0]["state"] == "login_required")
        assert client.login("alpha", answer(PASSWORD))["state"] == "connected"
        end = grid.end(job)
        assert (end["state"], end["components"][0]["attempt"]) == ("done", 1)
    log = (grid.root / "state" / "koala" / "live" / "koalad.log").read_text()
    assert PASSWORD not in log


def test_a_cluster_behind_a_jump_host(testgrid: Any, entries: Any, koala: Make, tmp_path: Path) -> None:
    """delta, whose Python is 3.13, through alpha; each verified, as the person's own configuration has it."""
    gate, inner = (entries[name]["connect"].rpartition("@")[2] for name in ("alpha", "delta"))
    own = f"User {layout.USER}\nIdentityFile {entries['alpha']['identity']}\n"
    own += f"UserKnownHostsFile {entries['alpha']['known_hosts']}\n"
    inside = testgrid.containers.address("delta", "cluster")
    hosts = [f"Host gate\nHostName {gate}", f"Host inner\nHostName {inside}\nHostKeyAlias {inner}\nProxyJump gate"]
    (tmp_path / "config").write_text("\n".join([*hosts, f"Host *\n{own}"]))
    there = {"connect": "ssh://inner", "ssh_config": str(tmp_path / "config")}
    kept = {key: entries["delta"][key] for key in ("batch", "queue") if key in entries["delta"]}
    grid = koala({"delta": kept | there})
    connected(grid, "delta")
    assert runs(grid, "delta", "python3 --version").startswith("Python 3.13")


@pytest.mark.slow
def test_a_head_node_that_stands_in(testgrid: Any, entries: Any, koala: Make, second_sshd: Any) -> None:
    second_sshd("alpha", "")
    first, other = f"{entries['alpha']['connect']}:{PORT}", entries["alpha"]["connect"]
    grid = koala({"alpha": entries["alpha"] | {"connect": [first, other]}})
    connected(grid)
    job = grid.submit(live.sh("sleep 3; echo outlived", cluster="alpha", walltime="2m"))
    grid.until(lambda: grid.job(job)["started_at"])
    cut(testgrid, "alpha", also=f"$(cat {PID})")
    end = grid.end(job)
    assert (end["state"], end["components"][0]["attempt"]) == ("done", 1)
    log = (grid.root / "state" / "koala" / "live" / "koalad.log").read_text()
    assert log.count("cluster_connected") == 2


BANNER = r"""printf '\033[1mWelcome\nto the cluster.\n'; echo 'Mind the step.' >&2"""
# A Python that is not on the PATH, and what brings it: as environment modules do.
MODULE = """
mkdir -p /opt/ways/bin
ln -sf "$(command -v python3)" /opt/ways/bin/ways-python
echo 'ways() { export PATH="/opt/ways/bin:$PATH"; echo "loaded $1"; }' >/etc/profile.d/ways.sh
echo "%s" >>/etc/profile.d/ways.sh
"""


def test_a_banner_and_a_python_that_a_module_brings(testgrid: Any, entries: Any, koala: Make) -> None:
    """On the head node and on two compute nodes, whose agents use streams that a module's words would spoil."""
    places = ("alpha", *(f"alpha-c{number}" for number in range(1, 9)))
    for place in places:
        testgrid.containers.check(place, ["bash", "-euc", MODULE % BANNER.replace("\\", "\\\\").replace('"', '\\"')])
    try:
        grid = koala({"alpha": entries["alpha"] | {"python": "ways-python", "setup": ["ways python"]}})
        connected(grid)
        job = grid.end(grid.submit(live.sh("hostname", processors=8, cluster="alpha", walltime="2m")))
        assert job["state"] == "done", job["reason"]
        with grid.client() as client:
            said = b"".join(client.output(job["id"])).split()
        assert (len(said), len(set(said))) == (8, 2)
    finally:
        for place in places:
            testgrid.containers.check(place, ["rm", "-rf", "/opt/ways", "/etc/profile.d/ways.sh"])


@pytest.mark.slow
def test_login_shells_that_are_not_bash(testgrid: Any, entries: Any, koala: Make) -> None:
    """Installed on the head node from Debian's mirror; compute nodes keep what they have."""
    install = "command -v fish tcsh zsh >/dev/null || { apt-get update && apt-get install -y fish tcsh zsh; } >&2"
    testgrid.containers.check("alpha", ["bash", "-euc", install])
    try:
        for shell in ("fish", "tcsh", "zsh"):
            testgrid.containers.check("alpha", ["usermod", "--shell", f"/usr/bin/{shell}", layout.USER])
            grid = koala({"alpha": entries["alpha"] | {"setup": ["export WAYS=in"]}})
            connected(grid)
            assert runs(grid, "alpha", "echo $WAYS") == "in\n", shell
            grid.stop()
    finally:
        testgrid.containers.check("alpha", ["usermod", "--shell", "/bin/bash", layout.USER])
