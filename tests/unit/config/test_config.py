"""The grid file: every documented key, and what other rooms read of it."""

import inspect
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from koalapy_adapters.messages.koalad import ClusterConfig

from koalapy.config import (
    Command,
    ConnectError,
    Connection,
    Docker,
    GridFile,
    Local,
    Ssh,
    cluster_config,
    engine_settings,
    inside,
    json_schema,
    parse_connect,
    read_grid,
    with_isolation,
)
from koalapy.config.hours import parse_hours
from koalapy.model.cluster import ClusterSettings, Scavenge
from koalapy.model.errors import RequestError
from koalapy.model.identity import JobId
from koalapy.model.request import Fill, Isolate, PilotOptions
from koalapy.model.settings import Preempt, PreemptBy, Scavenging, Settings
from koalapy.model.units import HOUR, MILLISECOND, MINUTE, SECOND, Duration

ROOT = Path(__file__).parents[3]
BATCH = ("slurm", "sge", "pbs", "local")
SMALL = """\
grid: small
clusters:
  here:
    batch: local
    connect: "local:"
"""
DESIGN = """\
grid: das
clusters:
  vu:    {batch: slurm, connect: "ssh://me@fs0.vu.example", queue: defq, account: physics}
  delft: {batch: sge, connect: "ssh://me@fs3.delft.example", parallel_environment: mpi, drmaa: auto}
  lab:   {batch: pbs, connect: "command:ssh -T lab", queue: workq, shared: /scratch/me/koala, python: /opt/bin/python3}
  here:  {batch: local, connect: "local:", slots: 8}
scheduling: {queue: fcfs, placement: best-fit, max_overtakes: 7}
claim: {timeout: 90s}                # from the claim until its last batch job has started
barrier: {timeout: 4m, wait: 1h, processor_hours: 12.5, fill: none}  # from the first at its barrier until release
retries: {submission: 5, completion: 0}
scavenging: {policy: equipartition-persite, grace: 5s}
store: postgresql://me@db/koala
queue_after: 0s
orphan_timeout: 20m
"""
ALL_KEYS = """\
koala: 1
grid: full
clusters:
  a:
    batch: sge
    connect: ["ssh://me@[fe80::1]:2222", ssh://fs1]
    queue: all.q
    account: 007
    qos: no
    isolation: {method: bwrap, visible: [/opt, /sw/modules]}
    reservation: r1
    constraint: "[rack1|rack2]&gpu"
    parallel_environment: mpi
    only_named: yes
    race: no
    processors_per_node: 16
    exclusive: yes
    setup: [module load python, 'echo "a: b"']
    native: ["-l h_vmem=1G"]
    relay: files
    network: blue
    poll: 30s
    max_age: 5m
    backlog: 0
    drmaa: /usr/lib/libdrmaa.so.1.0
    identity: ~/.ssh/id_grid
    known_hosts: /etc/koala/known_hosts
    ssh_config: ~/.ssh/config-of-the-grid
    shared: ~/koala/
    python: python3.9
    attributes: {OpSys: Linux, AverageSI: 1500, Load: 0.5, PublicIP: true, Serial: "007", RTE: [MPICH-G2, "1"]}
    scavenge:
      off: no
      idle_share: 25%
      max_nodes: 16
      hours: "* 20-23,0-7 * * *"
      floor: 500ms
      queue: scavenge.q
      qos: standby
      parallel_environment: loose
  b: {batch: local, connect: "local:", slots: 4, relay_network: 10.1.0.0/16}
  c: {batch: slurm, connect: "ssh://fs2", power_up: no}
"""


@pytest.mark.parametrize(
    ("hours", "texts"),
    [
        ('"* 20-23,0-7 * * *"', ["* 20-23,0-7 * * *"]),
        ('["* 19-23 * * *", "* * * * sat,sun"]', ["* 19-23 * * *", "* * * * sat,sun"]),
        ("[]", []),
    ],
)
def test_hours_of_lending_are_one_text_or_several(hours: str, texts: list[str]) -> None:
    site = f"site: {{name: a, lend: {{to: [b], processors: 4, hours: {hours}}}}}\n"
    lend = engine_settings(read(SMALL + site)).lend
    assert lend is not None
    assert [each.text for each in lend.hours] == texts


def read(text: str | bytes, **policies: Any) -> GridFile:
    return read_grid(text, "grid.yaml", BATCH, **policies)


def in_cluster(line: str) -> str:
    return f"{SMALL}    {line}\n"


def test_the_example_of_the_design_is_read() -> None:
    found = engine_settings(read(DESIGN))
    assert [cluster.name for cluster in found.clusters] == ["vu", "delft", "lab", "here"]
    assert (found.queue, found.placement, found.max_overtakes) == ("fcfs", "best-fit", 7)
    assert (found.claim_timeout, found.barrier_timeout) == (90 * SECOND, 4 * MINUTE)
    assert (found.barrier_wait, found.held_limit, found.fill) == (HOUR, 12.5 * HOUR, Fill.NONE)
    assert (found.max_submission_failures, found.max_completion_failures) == (5, 0)
    assert (found.queue_after, found.orphan_timeout) == (0, 20 * MINUTE)


def test_who_may_preempt_is_read() -> None:
    text = "scheduling: {preempt: {how: vacate, for: 1, from: 12, policy: lowest-priority-first, users: [me, you]}}\n"
    wanted = Preempt(
        how=PreemptBy.VACATE, highest=1, lowest=12, policy="lowest-priority-first", users=("me", "you")
    )  # fmt: skip
    assert engine_settings(read(SMALL + text)).preempt == wanted
    assert engine_settings(read(SMALL)).preempt == Preempt()
    text = "scheduling: {preempt: {how: suspend}}\n"
    assert engine_settings(read(SMALL + text)).preempt == Preempt(how=PreemptBy.SUSPEND)
    with pytest.raises(RequestError, match=r"scheduling.preempt.from is 1, so jobs could preempt each other"):
        read(SMALL + "scheduling: {preempt: {how: vacate, for: 1, from: 1}}\n")
    with pytest.raises(RequestError, match=r"scheduling.preempt.policy is 'mine', no vacating policy"):
        read(SMALL + "scheduling: {preempt: {policy: mine}}\n", policies={"vacating": ["youngest-first"]})


def test_how_sweeps_share_is_read() -> None:
    text = """\
scavenging:
  {policy: equipartition-all, idleness: any-idle, admission: dynamic, reclaim: oldest-first, order: back-home,
   grace: 30s, walltime: 4h, max_runners: 12, nodes_per_runner: 8}
"""
    assert engine_settings(read(SMALL + text)).scavenging == Scavenging(
        policy="equipartition-all",
        idleness="any-idle",
        admission="dynamic",
        reclaim="oldest-first",
        order="back-home",
        grace=Duration(30 * SECOND),
        walltime=Duration(4 * HOUR),
        max_runners=12,
        nodes_per_runner=8,
    )


SHARES = [("0.25", 0.25), ("25%", 0.25), ('"25%"', 0.25), ('"0.25"', 0.25), ("0", 0.0), ("1", 1.0), ("100%", 1.0)]


@pytest.mark.parametrize(("written", "share"), SHARES)
def test_a_share_is_a_number_or_a_percentage(written: str, share: float) -> None:
    (cluster,) = engine_settings(read(in_cluster(f"scavenge: {{idle_share: {written}}}"))).clusters
    assert cluster.scavenge.idle_share == share


def test_native_preemption_is_a_queue_or_a_quality_of_service() -> None:
    assert not Scavenge().native
    assert Scavenge(queue="scavenge.q").native
    assert Scavenge(qos="standby").native


def test_defaults_are_those_of_the_settings() -> None:
    found = engine_settings(read(SMALL))
    assert found == Settings(clusters=(ClusterSettings(name="here", batch="local"),))


def test_every_key_of_a_cluster_arrives() -> None:
    grid = read(ALL_KEYS)
    (first, second, _) = engine_settings(grid).clusters
    assert first == ClusterSettings(
        name="a",
        batch="sge",
        network="blue",
        only_named=True,
        race=False,
        processors_per_node=16,
        exclusive=True,
        max_age=Duration(5 * MINUTE),
        poll=Duration(30 * SECOND),
        backlog=0,
        scavenge=Scavenge(
            idle_share=0.25,
            max_nodes=16,
            hours=parse_hours("* 20-23,0-7 * * *"),
            floor=Duration(500 * MILLISECOND),
            queue="scavenge.q",
            qos="standby",
            parallel_environment="loose",
        ),
        attributes=(
            ("OpSys", "Linux"),
            ("AverageSI", 1500),
            ("Load", 0.5),
            ("PublicIP", True),
            ("Serial", "007"),
            ("RTE", ("MPICH-G2", "1")),
        ),
    )
    assert second.max_age == 60 * SECOND
    cluster = grid.clusters["a"]
    assert cluster.connection == Ssh("fe80::1", "me", 2222)
    assert cluster.connections == (Ssh("fe80::1", "me", 2222), Ssh("fs1"))
    assert cluster.ssh_config == "~/.ssh/config-of-the-grid"
    assert (cluster.identity, cluster.known_hosts) == ("~/.ssh/id_grid", "/etc/koala/known_hosts")
    assert cluster_config(grid, "a") == {
        "name": "a",
        "batch": "sge",
        "queue": "all.q",
        "account": "007",
        "qos": "no",
        "reservation": "r1",
        "constraint": "[rack1|rack2]&gpu",
        "parallel_environment": "mpi",
        "processors_per_node": 16,
        "exclusive": True,
        "native": ["-l h_vmem=1G"],
        "setup": ["module load python", 'echo "a: b"'],
        "slots": None,
        "shared": "~/koala",
        "python": "python3.9",
        "drmaa": "/usr/lib/libdrmaa.so.1.0",
        "relay": "files",
        "relay_network": [],
        "poll": 30.0,
        "orphan_timeout": 600.0,
        "grace": 5.0,
        "floor": 0.5,
        "launchers_environment": "loose",
        "power_up": True,
    }
    assert cluster_config(grid, "c")["power_up"] is False
    assert [each.race for each in engine_settings(grid).clusters] == [False, True, True]


@pytest.mark.parametrize(
    ("written", "networks"),
    [("10.1.0.0/16", ["10.1.0.0/16"]), ("[10.1.0.0/16, 'fd00:1::/64']", ["10.1.0.0/16", "fd00:1::/64"])],
)
def test_networks_of_the_relay_are_one_or_several(written: str, networks: list[str]) -> None:
    assert cluster_config(read(in_cluster(f"relay_network: {written}")), "here")["relay_network"] == networks


def test_the_keys_above_are_all_there_are() -> None:
    written = {key for cluster in yaml.safe_load(ALL_KEYS)["clusters"].values() for key in cluster}
    assert written == set(json_schema()["$defs"]["Cluster"]["properties"])


def test_the_isolation_of_a_clusters_pilots_is_that_of_their_terms() -> None:
    terms = with_isolation(read(ALL_KEYS), PilotOptions(shared=True), "a")
    assert terms == PilotOptions(shared=True, isolate=Isolate.BWRAP, visible=("/opt", "/sw/modules"))
    assert with_isolation(read(SMALL), PilotOptions(), "here").isolate is Isolate.NONE
    inner = inside(read(ALL_KEYS).clusters["a"], JobId(7), terms)
    assert (inner.only_named, inner.scavenge.off) == (False, True)


@pytest.mark.parametrize("path", ["opt", "/", "/opt/../home", "/a:b", "/opt/"])
def test_a_visible_directory_is_a_plain_absolute_path(path: str) -> None:
    text = SMALL.replace("batch: local", f"batch: local, isolation: {{visible: ['{path}']}}")
    assert text != SMALL
    with pytest.raises(RequestError, match="visible"):
        read(text)


def test_a_cluster_is_described_in_the_words_of_the_wire() -> None:
    fields = cluster_config(read(SMALL), "here")
    message = ClusterConfig(**fields)
    assert message._asdict() == fields
    assert message == ClusterConfig(name="here", batch="local")
    assert json.loads(json.dumps(fields)) == fields


def test_max_age_follows_poll() -> None:
    grid = read(in_cluster("poll: 1m"))
    assert grid.clusters["here"].oldest == 6 * MINUTE
    assert read(in_cluster("poll: 1s")).clusters["here"].oldest == 30 * SECOND


def test_dumped_and_read_again_it_is_the_same() -> None:
    for text in (SMALL, DESIGN, ALL_KEYS):
        grid = read(text)
        assert read(json.dumps(grid.model_dump(mode="json"))) == grid


def test_the_schema_and_the_documentation_agree() -> None:
    schema = json.loads(json.dumps(json_schema()))
    documentation = (ROOT / "docs" / "grid-file.md").read_text()
    documented = set(re.findall(r"`([a-z_.]+)`", documentation))
    for key in schema["$defs"]["Cluster"]["properties"]:
        assert key in documented
    for key in schema["$defs"]["Scavenge"]["properties"]:
        assert f"scavenge.{key}" in documented
    for key, value in schema["properties"].items():
        section = schema["$defs"].get(value.get("$ref", "").rpartition("/")[2])
        inside = section.get("properties") if section else None  # none in an enumeration
        names = [f"{key}.{inner}" for inner in inside] if inside else [key]
        assert set(names) <= documented


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "grids").glob("*.yaml")), ids=lambda path: path.name)
def test_examples_are_read(path: Path) -> None:
    assert read_grid(path.read_bytes(), path.name, BATCH).grid == path.stem


def test_the_grid_file_of_the_readme_is_read() -> None:
    readme = (ROOT / "README.md").read_text()
    text = readme.split("    $ cat ~/.config/koala/grid.yaml\n")[1].split("    $ ")[0]
    assert list(read_grid(textwrap.dedent(text), "README.md", BATCH).clusters) == ["amsterdam", "delft"]


@pytest.mark.parametrize(
    ("text", "connection"),
    [
        ("ssh://fs0", Ssh("fs0")),
        ("ssh://me@fs0.vu.example:22", Ssh("fs0.vu.example", "me", 22)),
        ("ssh://[::1]", Ssh("::1")),
        ("local:", Local()),
        ("docker://koala@alpha_head-1", Docker("alpha_head-1", "koala")),
        ("docker://alpha", Docker("alpha")),
        ("command:ssh -T 'fs 0'", Command(("ssh", "-T", "fs 0"))),
    ],
)
def test_connections(text: str, connection: Connection) -> None:
    assert parse_connect(text) == connection


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fs0",
        "ssh:fs0",
        "ssh://",
        "ssh://me@",
        "ssh://-oProxyCommand=x",
        "ssh://a b",
        "ssh://host:0",
        "ssh://host:99999",
        "ssh://host/path",
        "ssh://me:secret@host",
        "ssh://-me@host",
        "local:/tmp",
        "docker://",
        "docker://me@a/b",
        "command:",
        "command:  ",
        "command:'open",
        "http://host",
    ],
)
def test_no_connections(text: str) -> None:
    with pytest.raises(ConnectError):
        parse_connect(text)


def test_every_default_of_the_wire_is_one_of_the_file() -> None:
    parameters = inspect.signature(ClusterConfig).parameters
    assert set(cluster_config(read(SMALL), "here")) == set(parameters)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ("{FreeCPUs: 5}", "attributes.FreeCPUs is an attribute that koalapy measures"),
        ("{glueCEinfoTOTALcpus: 5}", "is an attribute that koalapy measures"),
        ("{a: 1, A: 2}", "attributes.A differs from a only by upper and lower case"),
        ("{1a: 1}", "attributes.1a is not the name of an attribute"),
        ("{other: 1}", "attributes.other is not the name of an attribute"),
        ("{a: {b: 1}}", "attributes.a is a mapping where a number, a text or a list of such belongs"),
        ("{a: [[1]]}", "attributes.a is a list where a number, a text or a list of such belongs"),
        ('{a: "x\\ty"}', "which is no printable text of at most 1000 characters"),
        ("[a]", "attributes is a list where keys and values belong"),
        (f"{{{', '.join(f'a{number}: 1' for number in range(101))}}}", "has 101 names, more than 100"),
    ],
)
def test_an_attribute_that_no_ad_can_have_is_refused(attributes: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(in_cluster(f"attributes: {attributes}"))
    assert words in str(caught.value)
    assert "grid.yaml:" in str(caught.value)


def test_a_whole_number_of_more_than_64_bits_is_read_as_a_real() -> None:
    (cluster,) = engine_settings(read(in_cluster(f"attributes: {{Some: {10**18 - 1}, Many: {2**64}}}"))).clusters
    assert cluster.attributes == (("Some", 10**18 - 1), ("Many", float(2**64)))
    assert isinstance(dict(cluster.attributes)["Many"], float)
