"""The test grid's own logic, without an engine: addresses, images' names, files, messages."""

import io
import os
import shutil
import stat
import subprocess
import sys
import threading
from ipaddress import IPv4Network
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import docker
import paramiko
import pytest
import yaml
from typer.testing import CliRunner

from koalapy import testgrid
from koalapy.cli.main import app
from koalapy.common.data import data_path
from koalapy.model.errors import OurError
from koalapy.testgrid import (
    Containers,
    ContainersError,
    Running,
    Status,
    compose,
    layout,
    lifecycle,
    networks,
    state,
)

ADDRESSES = {"alpha": "10.0.0.1", "beta": "10.0.0.2", "gamma": "10.0.0.3", "delta": "10.0.0.4"}
ROUTES = """\
Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	0101A8C0	0003	0	0	0	00000000	0	0	0
eth0	0001A8C0	00000000	0001	0	0	0	00FFFFFF	0	0	0
tun0	0000D50A	00000000	0001	0	0	0	0080FFFF	0	0	0
"""


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("running", "Its containers run, but there is no {}/koala/{}/grid.yaml: set the XDG_STATE_HOME"),
        ("exited", "The test grid is not up."),
    ],
)
def test_containers_that_another_state_directory_has_are_reported_as_such(
    state_home: Path, monkeypatch: pytest.MonkeyPatch, status: str, words: str
) -> None:
    found = Status(up=False, grid_file=None, addresses={}, hosts={"alpha": status, "beta": status})
    monkeypatch.setattr(testgrid, "status", lambda: found)
    answer = CliRunner().invoke(app, ["testgrid", "status"])
    assert answer.exit_code == 1, answer.output
    assert words.format(state_home, layout.NAME) in answer.stderr


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory that is all of PATH, for commands of the test's own making."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    return directory


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_the_compose_file_has_the_promised_hosts() -> None:
    counts = {cluster.name: len(cluster.nodes) for cluster in layout.CLUSTERS}
    assert counts == {"alpha": 8, "beta": 4, "gamma": 4, "delta": 2}
    assert len(layout.hosts()) == 22
    assert all("access" in layout.networks_of(head) for head in layout.HEADS)
    assert all(set(layout.networks_of(node)) == {"cluster"} for each in layout.CLUSTERS for node in each.nodes)


@pytest.mark.parametrize("network", layout.NETWORKS)
def test_no_two_hosts_have_the_same_address(network: layout.Network) -> None:
    numbers = [layout.networks_of(host).get(network) for host in layout.hosts()]
    there = [number for number in numbers if number is not None]
    assert len(set(there)) == len(there)
    assert 1 not in there, "the engine's own"


def test_the_hosts_file_has_the_addresses_that_the_network_gives() -> None:
    composed = yaml.safe_load((layout.directory() / "compose.yml").read_text())
    lines = composed["x-container"]["extra_hosts"]
    said = {name: int(address.rpartition(".")[2]) for name, _, address in (line.partition(":") for line in lines)}
    assert said.pop("epsilon"), "a host that is not there does no harm"
    assert said == {host: layout.networks_of(host)["cluster"] for host in layout.hosts()}


def test_heads_and_nodes_agree_on_the_number_of_nodes() -> None:
    services = yaml.safe_load((layout.directory() / "compose.yml").read_text())["services"]
    for cluster in layout.CLUSTERS:
        for host in (cluster.name, *cluster.nodes):
            environment = services[host]["environment"]
            assert environment["CLUSTER"] == cluster.name
            assert environment["NODES"] == str(len(cluster.nodes))
            assert environment["ROLE"] == ("head" if host == cluster.name else "node")


def test_a_cluster_of_openpbs_is_there_for_who_names_an_image_that_has_it() -> None:
    program = (
        "from koalapy.testgrid import compose, layout\n"
        "print(*layout.HEADS, layout.hosts()[-1], *layout.images())\n"
        "print(compose.tag(layout.directory()))\n"
    )
    images = ("", "site/openpbs:23")
    said = [run_python(program, KOALA_TESTGRID_PBS_IMAGE=image).splitlines() for image in images]
    assert [line.split()[3:] for line, _ in said] == [
        ["delta", "delta-c2", "koala-testgrid-slurm", "koala-testgrid-slurm-trixie", "koala-testgrid-sge"],
        ["delta", "epsilon", "epsilon", *list(layout.IMAGES)],
    ]
    assert said[0][1] != said[1][1]


def test_scripts_for_openpbs_read_its_profile_before_unset_variables_are_errors() -> None:
    """OpenPBS's own profile reads MANPATH, which a container does not have."""
    texts = [path.read_text() for path in sorted((layout.directory() / "pbs").iterdir())]
    profiled = [text for text in texts if ". /etc/profile.d/pbs.sh" in text]
    assert len(profiled) == 5
    assert [text for text in profiled if "set -" in text.partition(". /etc/profile.d/pbs.sh")[0]] == []


def test_each_qmgr_of_the_scripts_for_openpbs_has_one_command() -> None:
    """qmgr obeys only the last of several `-c`."""
    lines = [line for path in (layout.directory() / "pbs").iterdir() for line in path.read_text().splitlines()]
    calls = [line for line in lines if "qmgr -c" in line]
    assert len(calls) >= 7
    assert [part for line in calls for part in line.split("||") if part.count(" -c ") > 1] == []


def test_the_cluster_network_is_internal_and_the_other_is_not() -> None:
    there = yaml.safe_load((layout.directory() / "compose.yml").read_text())["networks"]
    assert there["cluster"]["internal"] is True
    assert "internal" not in there["access"]


def test_routes_are_read_but_for_the_default_one() -> None:
    assert networks.routes(ROUTES) == [IPv4Network("192.168.1.0/24"), IPv4Network("10.213.0.0/17")]


def test_chosen_addresses_overlap_nothing_and_one_another() -> None:
    used = [IPv4Network("10.213.0.0/17"), IPv4Network("10.213.128.0/25")]
    first, second = islice(networks.choose(used), 2)
    assert [str(first), str(second)] == ["10.213.129.0/24", "10.213.130.0/24"]


def test_a_machine_without_free_addresses_is_refused() -> None:
    everything = [IPv4Network("0.0.0.0/0")]
    with pytest.raises(ContainersError, match="No private address range is free"):
        next(networks.choose(everything))


def test_the_images_name_follows_the_content_of_the_build_context(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    shutil.copytree(layout.directory(), first)
    shutil.copytree(layout.directory(), second)
    assert compose.tag(first) == compose.tag(second) == compose.tag(layout.directory())
    with open(second / "slurm" / "slurm.conf", "a") as file:
        file.write("#\n")
    assert compose.tag(first) != compose.tag(second)


def test_a_renamed_file_is_another_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    before = compose.tag(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    assert compose.tag(tmp_path) != before


class Engine:
    """An engine's images by their names, and the names in its containers' configurations."""

    def __init__(self, images: list[str], used: list[str]) -> None:
        self.names = images
        self.containers = SimpleNamespace(list=self._containers)
        self.images = SimpleNamespace(
            list=lambda: [SimpleNamespace(tags=[name]) for name in self.names], remove=self.names.remove
        )
        self._used = used

    def _containers(self, all: bool = False, ignore_removed: bool = False) -> list[Any]:
        assert all, "a stopped container names its image too"
        return [SimpleNamespace(attrs={"Config": {"Image": name}}) for name in self._used]


@pytest.mark.parametrize("keep", ["new", None])
def test_images_that_another_test_grids_containers_name_are_kept(keep: str | None) -> None:
    first, second = list(layout.IMAGES)[:2]
    others = [f"{first}:other", "python:3.11"]
    engine = Engine([f"{first}:old", f"{first}:new", f"{second}:old", *others], used=[f"{first}:other", f"{second}:x"])
    lifecycle._remove_images(Containers(cast(docker.DockerClient, engine)), keep=keep)
    assert engine.names == ([f"{first}:new"] if keep else []) + others


def test_compose_of_version_2_is_preferred(commands: Path) -> None:
    script(commands / "docker", '[ "$1 $2" = "compose version" ]')
    script(commands / "docker-compose", "exit 0")
    assert compose.command() == ["docker", "compose"]


def test_compose_of_version_1_serves_where_docker_knows_no_compose(commands: Path) -> None:
    script(commands / "docker", "exit 1")
    script(commands / "docker-compose", "exit 0")
    assert compose.command() == ["docker-compose"]


def test_missing_compose_is_reported_in_one_sentence(commands: Path) -> None:
    with pytest.raises(ContainersError, match=r"^Neither 'docker compose' nor 'docker-compose' is installed\."):
        compose.command()


def test_a_failed_build_shows_the_tail_of_its_output(commands: Path) -> None:
    (commands / "bash").symlink_to("/bin/bash")
    script(commands / "docker", "exit 0")
    script(commands / "docker-compose", "exit 0")
    lines = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i; done"
    script(commands / "docker", f'[ "$1" != compose ] && exit 0; [ "$2" = version ] && exit 0; {lines}; exit 7')
    with pytest.raises(ContainersError) as caught:
        compose.build({}, lambda _: None)
    assert "ended with 7" in caught.value.reason.message
    said = caught.value.reason.advice.splitlines()
    assert said[-1] == "line 40"
    assert "line 25" not in said


def test_the_base_image_is_left_alone_where_it_is(commands: Path) -> None:
    assert make_base(commands, "exit 0").stdout == "debian:bookworm-slim is there.\n"


def test_the_base_image_of_another_release_is_made_by_its_name(commands: Path) -> None:
    done = make_base(commands, '[ "$*" = "image inspect debian:trixie-slim" ]', "trixie")
    assert done.stdout == "debian:trixie-slim is there.\n"


def test_the_base_image_is_pulled_where_a_registry_answers(commands: Path) -> None:
    done = make_base(commands, '[ "$1" = pull ]')
    assert done.stdout == "debian:bookworm-slim was pulled from the registry.\n"


def test_without_registry_and_debootstrap_the_base_image_is_refused_in_one_sentence(commands: Path) -> None:
    script(commands / "id", "echo 0")
    done = make_base(commands, "exit 1")
    assert done.returncode == 1
    assert done.stderr == (
        "No registry gives debian:bookworm-slim and debootstrap is not installed. Install the package debootstrap.\n"
    )


def test_the_key_pair_is_made_once_for_its_owner_alone() -> None:
    line = state.public_key(state.identity_file())
    assert state.public_key(state.identity_file()) == line
    assert stat.S_IMODE(os.stat(state.identity_file()).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(state.directory()).st_mode) == 0o700
    key = paramiko.Ed25519Key.from_private_key(io.StringIO(state.identity_file().read_text()))
    assert line.split()[:2] == ["ssh-ed25519", key.get_base64()]


def test_the_grid_file_stands_alone() -> None:
    path = state.write_grid_file(ADDRESSES)
    grid = yaml.safe_load(path.read_text())
    assert grid["grid"] == layout.NAME
    assert grid["clusters"]["beta"] == {
        "batch": "slurm",
        "connect": "ssh://koala@10.0.0.2",
        "queue": "batch",
        "shared": "/shared/koala",
        "identity": str(state.identity_file()),
        "known_hosts": str(state.known_hosts_file()),
    }
    assert grid["clusters"]["gamma"]["parallel_environment"] == "mpi"
    assert Path(grid["clusters"]["alpha"]["identity"]).is_absolute()


def test_a_grid_of_some_of_the_clusters_is_taken_out_of_the_grid_file() -> None:
    path = state.write_grid_file(ADDRESSES)
    running = Running(path, layout.HEADS, Containers(docker.DockerClient("unix:///nowhere", version="1.41")))
    assert list(running.grid()["clusters"]) == ["alpha", "beta", "gamma", "delta"]
    some = running.grid("delta", "beta")
    assert list(some["clusters"]) == ["delta", "beta"]
    assert some["clusters"]["beta"] == yaml.safe_load(path.read_text())["clusters"]["beta"]


def test_a_relative_state_home_still_gives_absolute_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", "here")
    assert state.grid_file() == tmp_path / "here" / "koala" / layout.NAME / "grid.yaml"


def test_known_hosts_are_what_ssh_reads() -> None:
    key = state.public_key(state.identity_file()).rpartition(" ")[0]
    state.write_known_hosts({"10.0.0.1": key})
    known = paramiko.HostKeys(str(state.known_hosts_file()))
    assert known.check("10.0.0.1", paramiko.Ed25519Key(filename=str(state.identity_file())))
    assert not known.check("10.0.0.2", paramiko.Ed25519Key(filename=str(state.identity_file())))


def test_the_test_grid_is_held_by_one_at_a_time() -> None:
    order: list[str] = []

    def second() -> None:
        with state.reserved():
            order.append("second")

    with state.reserved():
        waiting = threading.Thread(target=second)
        waiting.start()
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]


@pytest.mark.parametrize("arguments", [["up"], ["down"], ["status"], ["reset"], ["up", "--json"]], ids=" ".join)
def test_without_an_engine_every_command_reports_it_and_ends_with_1(arguments: list[str], tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "koalapy.cli.testgrid", *arguments]
    environment = os.environ | {"DOCKER_HOST": f"unix://{tmp_path}/no.sock"}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "No Docker engine can be reached." in done.stderr
    assert "Traceback" not in done.stderr


def test_data_is_found_in_the_checkout() -> None:
    assert (data_path("containers") / "compose.yml").is_file()
    assert data_path("configs/examples").is_dir()


def test_data_that_is_not_there_is_named() -> None:
    with pytest.raises(OurError, match="koalapy's data 'conigs' is not installed"):
        data_path("conigs")


def test_data_is_found_inside_the_package_where_a_wheel_put_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import koalapy

    package = tmp_path / "koalapy"
    shutil.copytree(Path(koalapy.__file__).parent, package, ignore=shutil.ignore_patterns("_data", "__pycache__"))
    shutil.copytree(data_path("containers"), package / "_data" / "containers")
    program = "from koalapy.testgrid import layout; print(layout.directory()); print(len(layout.hosts()))"
    monkeypatch.chdir(tmp_path)
    said = run_python(program, PYTHONPATH=str(tmp_path))
    assert said.split() == [str(package / "_data" / "containers"), str(len(layout.hosts()))]


def run_python(program: str, **environment: str) -> str:
    """Return the output of the program, run by itself with these variables."""
    argv = [sys.executable, "-c", program]
    return subprocess.run(argv, env=os.environ | environment, capture_output=True, text=True, check=True).stdout


def make_base(commands: Path, docker: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """base/make-base with an engine of the test's own, and no other command than a shell's few."""
    for name in ("timeout", "mktemp"):
        (commands / name).symlink_to(shutil.which(name, path="/usr/bin:/bin") or name)
    if not (commands / "id").exists():
        (commands / "id").symlink_to("/usr/bin/id")
    script(commands / "docker", docker)
    argv = ["/bin/bash", str(layout.directory() / "base" / "make-base"), *arguments]
    return subprocess.run(argv, env={"PATH": str(commands)}, capture_output=True, text=True, check=False)
