"""The job file: every documented key, overrides, and the same from a mapping."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from job_languages import read_native as read

from koalapy.languages import from_mapping, language_of, read_job
from koalapy.languages.jobfile import JobFile
from koalapy.languages.mapping import job_mapping
from koalapy.languages.paths import staged_name
from koalapy.languages.reading import json_schema
from koalapy.model.errors import RequestError
from koalapy.model.identity import JobId
from koalapy.model.notification import Mail, Notify, NotifyOn, Program, Webhook
from koalapy.model.request import (
    ComponentRequest,
    Fill,
    Interactive,
    KeepOutput,
    Launch,
    Moment,
    MpiFlavour,
    Request,
    RequestType,
    RetryOn,
    WhenBusy,
)
from koalapy.model.textfile.document import read_document
from koalapy.model.units import HOUR, MINUTE, Duration, parse_instant

ROOT = Path(__file__).parents[3]
CLUSTERS = ("vu", "Delft")
DESIGN = """\
name: poisson
components:                          # no cluster named = unordered; named = ordered
  - {processors: 8, executable: ./poisson.py, arguments: [--grid, "512"], walltime: 10m}
  - {processors: 8, cluster: delft, executable: ./poisson.py}
stage_in: [poisson.py]
stage_out: [result.npy]
"""
SMALL = "components:\n  - processors: 4\n    executable: hostname\n"
ALL_KEYS = """\
koala: 1
name: all
after: [7, 9, 7]
on_error: 3
relax_after: 2m
components:
  - processors: 16
    executable: /opt/solve
    arguments: [-n, 1e3, 0x10, 010, no, 1:30, 2030-01-31, "", " a b ", "ünï", $HOME, 1_000, .5]
    cluster: VU
    walltime: 1h30m
    launch: mpi
    mpi: mpich
    processors_per_node: 8
    threads_per_process: 4
    memory_per_processor: 512M
    gpus: 2
    exclusive: on
    environment: {OMP_NUM_THREADS: 4, LANG: no, EMPTY: "", _x: "a=b"}
    setup: [module load solver, 'export A="b: c"']
    account: 007
    queue: fast
    qos: high
    constraint: "gpu&a100"
    native: [--mail-type=END]
    optional: false
    requirements: OpSys == "Linux"
    rank: -WaitingJobs
    spread: false
  - {processors: 1, executable: sh, optional: true}
labels: {project: poisson, run/1: 7, my.flag: no}
priority: 0
when_busy: queue
retry_on: [exit, lost, exit]
communication: none
barrier: {wait: 1h, processor_hours: 0.5, fill: none}
begin: 2030-01-31T20:00:00Z
claim_before: 30m
expires: 3d
race: {most: 5}
dttl: 2
stage_in: [data/./a.txt, /home/me/b.txt, ../c.txt]
stage_out: [./out//result.npy]
keep_output: home
notify: [{webhook: "https://hooks.example/s", on: [failed]}, {mail: me@example.org}, {command: [notify-send, 7, no]}]
"""


SWEEP_KEYS = {"parameters", "csv", "combine", "order"}  # see test_sweep_languages
NOT_FOR_MPI = {"interactive"}


def job(text: str | bytes, **overrides: str) -> Request:
    return read(text, "jobs/job.yaml", "/home/me/jobs", CLUSTERS, overrides)


def in_component(line: str) -> str:
    return f"{SMALL}    {line}\n"


def test_the_example_of_the_design_is_read() -> None:
    assert job(DESIGN) == Request(
        name="poisson",
        components=(
            ComponentRequest(
                processors=8, executable="./poisson.py", arguments=("--grid", "512"), walltime=Duration(10 * MINUTE)
            ),
            ComponentRequest(processors=8, executable="./poisson.py", cluster="Delft"),
        ),
        stage_in=("poisson.py",),
        stage_out=("result.npy",),
        directory="/home/me/jobs",
    )
    assert job(DESIGN).type is RequestType.MIXED


def test_every_key_arrives() -> None:
    arguments = ("-n", "1e3", "0x10", "010", "no", "1:30", "2030-01-31", "", " a b ", "ünï", "$HOME", "1_000", ".5")
    assert job(ALL_KEYS) == Request(
        name="all",
        components=(
            ComponentRequest(
                processors=16,
                executable="/opt/solve",
                arguments=arguments,
                cluster="vu",
                walltime=Duration(HOUR + 30 * MINUTE),
                launch=Launch.MPI,
                mpi=MpiFlavour.MPICH,
                processors_per_node=8,
                threads_per_process=4,
                memory_per_processor=512 << 20,
                gpus=2,
                exclusive=True,
                environment=(("OMP_NUM_THREADS", "4"), ("LANG", "no"), ("EMPTY", ""), ("_x", "a=b")),
                setup=("module load solver", 'export A="b: c"'),
                account="007",
                queue="fast",
                qos="high",
                constraint="gpu&a100",
                native=("--mail-type=END",),
                requirements='other.OpSys == "Linux"',
                rank="- other.WaitingJobs",
            ),
            ComponentRequest(processors=1, executable="sh", optional=True),
        ),
        priority=0,
        when_busy=WhenBusy.QUEUE,
        retry_on=(RetryOn.EXIT, RetryOn.LOST),
        communication=False,
        begin=Moment(instant=parse_instant("2030-01-31T20:00:00Z")),
        claim_before=Duration(30 * MINUTE),
        expires=Moment(after=Duration(72 * HOUR)),
        race=5,
        barrier_wait=HOUR,
        held_limit=HOUR // 2,
        fill=Fill.NONE,
        dttl=2,
        stage_in=("data/./a.txt", "/home/me/b.txt", "../c.txt"),
        stage_out=("out/result.npy",),
        keep_output=KeepOutput.HOME,
        notify=(
            Notify(to=Webhook(url="https://hooks.example/s"), on=(NotifyOn.FAILED,)),
            Notify(to=Mail(address="me@example.org")),
            Notify(to=Program(words=("notify-send", "7", "no"))),
        ),
        labels=(("project", "poisson"), ("run/1", "7"), ("my.flag", "no")),
        after=(JobId(7), JobId(9)),
        retrials=3,
        relax_after=Duration(2 * MINUTE),
        directory="/home/me/jobs",
    )


def test_the_keys_above_are_all_there_are() -> None:
    written, schema = yaml.safe_load(ALL_KEYS), json_schema()
    assert set(written) | SWEEP_KEYS | NOT_FOR_MPI | {"site"} == set(schema["properties"])  # it stages nothing
    assert set(written["components"][0]) == set(schema["$defs"]["ComponentFile"]["properties"])


def test_defaults_are_those_of_the_request() -> None:
    component = ComponentRequest(processors=4, executable="hostname")
    expected = Request(name="job", components=(component,), when_busy=WhenBusy.QUEUE, directory="/home/me/jobs")
    assert job(SMALL) == expected


def test_a_job_of_several_components_waits() -> None:
    assert job(SMALL).when_busy is WhenBusy.QUEUE
    assert job(DESIGN).when_busy is WhenBusy.WAIT
    assert job(SMALL + "when_busy: wait\n").when_busy is WhenBusy.WAIT


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("a/b.c/solve.v2.yaml", "solve.v2"),
        ("solve", "solve"),
        ("-", "job"),
        ("<stdin>", "job"),
        ("", "job"),
        ("x\x1b", "x"),
    ],
)
def test_a_job_is_named_after_its_file(source: str, name: str) -> None:
    assert read(SMALL, source, "/", CLUSTERS).name == name


@pytest.mark.parametrize(
    ("written", "zone", "moment"),
    [
        ("+2h", "UTC", Moment(after=Duration(2 * HOUR))),
        ("90m", "UTC", Moment(after=Duration(90 * MINUTE))),
        ("2030-01-31T20:00", "UTC", Moment(instant=parse_instant("2030-01-31T20:00:00Z"))),
        ("2030-01-31 20:00:30.5", "UTC", Moment(instant=parse_instant("2030-01-31T20:00:30.5Z"))),
        ("2030-01-31", "UTC", Moment(instant=parse_instant("2030-01-31T00:00:00Z"))),
        ("2030-01-31T20:00", "Europe/Amsterdam", Moment(instant=parse_instant("2030-01-31T19:00:00Z"))),
        ("2030-07-31T20:00", "Europe/Amsterdam", Moment(instant=parse_instant("2030-07-31T18:00:00Z"))),
        ("2030-01-31T20:00+05:30", "Europe/Amsterdam", Moment(instant=parse_instant("2030-01-31T14:30:00Z"))),
    ],
)
@pytest.mark.parametrize("key", ["begin", "expires"])
def test_an_instant_or_a_time_from_now_on(
    key: str, written: str, zone: str, moment: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        found = job(f"{SMALL}{key}: {written}\n")
        assert getattr(found, key) == moment
        assert from_mapping(job_mapping(found), "job.yaml", "/home/me/jobs", CLUSTERS) == found
    finally:
        monkeypatch.undo()
        time.tzset()


def test_clusters_are_not_checked_where_none_are_known() -> None:
    assert read(in_component("cluster: mars"), "job.yaml", "/").components[0].cluster == "mars"


def test_clusters_may_be_a_mapping() -> None:
    assert read(in_component("cluster: VU"), "job.yaml", "/", {"vu": 1}).components[0].cluster == "vu"


def test_the_schema_and_the_documentation_agree() -> None:
    schema = json.loads(json.dumps(json_schema()))
    documented = set(re.findall(r"`([a-z_]+)`", (ROOT / "docs" / "job-file.md").read_text()))
    assert set(schema["properties"]) | set(schema["$defs"]["ComponentFile"]["properties"]) <= documented


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "examples").glob("**/*.yaml")), ids=lambda path: path.name)
def test_examples_are_read(path: Path) -> None:
    request = read_job(path.read_bytes(), str(path), str(path.parent))
    for name in request.stage_in:
        assert (path.parent / name).is_file()


def test_dumped_and_read_again_it_is_the_same() -> None:
    for text in (SMALL, DESIGN, ALL_KEYS):
        plain = yaml.load(text, yaml.BaseLoader)
        numbers = {
            "koala",
            "dttl",
            "after",
            "on_error",
            "priority",
            "processors",
            "processors_per_node",
            "threads_per_process",
            "gpus",
            "most",
        }
        dumped = JobFile.model_validate(typed(plain, numbers)).model_dump(mode="json", exclude_none=True)
        again = from_mapping(json.loads(json.dumps(dumped)), "job.yaml", "/home/me/jobs", CLUSTERS)
        assert again == job(text)
        assert job(json.dumps(dumped)) == again


def typed(value: Any, numbers: set[str], key: str = "") -> Any:
    """Return what a client would write as JSON for the text of a file."""
    if isinstance(value, dict):
        return {name: typed(inner, numbers, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [typed(inner, numbers, key) for inner in value]
    if key in numbers:
        return int(value)
    if key == "processor_hours":
        return float(value)
    return value in ("on", "true") if key in ("exclusive", "optional", "spread") else value


def test_numbers_of_a_mapping_are_written_as_in_a_file() -> None:
    component = {"processors": 2, "executable": "x", "arguments": (1, -2.5, True, False), "environment": {"A": 3}}
    found = from_mapping({"components": [component]}, "job.yaml", "/", CLUSTERS).components[0]
    assert found.arguments == ("1", "-2.5", "true", "false")
    assert found.environment == (("A", "3"),)


@pytest.mark.parametrize(
    ("path", "place"),
    [("a", "a"), ("./d//a", "d/a"), ("/x/a", "a"), ("../a", "a"), ("d/../a", "a")],
)
def test_where_a_staged_file_lies(path: str, place: str) -> None:
    assert staged_name(path) == place


def test_overrides() -> None:
    found = job(
        DESIGN,
        **{
            "name": "007",
            "priority": "3",
            "components.0.processors": "16",
            "components.0.arguments": "[--grid, 1e3]",
            "components.1.cluster": "",
            "components.1.environment.A": "x: y # z",
            "stage_out": "[]",
        },
    )
    assert (found.name, found.priority, found.stage_out) == ("007", 3, ())
    assert found.components[0].processors == 16
    assert found.components[0].arguments == ("--grid", "1e3")
    assert found.components[1].cluster is None
    assert found.components[1].environment == (("A", "x: y # z"),)
    assert job(DESIGN).components[1].environment == ()


@pytest.mark.parametrize("key", ["stage_out", "priority", "retry_on", "when_busy", "components.0.arguments", "name"])
def test_an_override_by_nothing_unsets_a_key_whether_it_is_there_or_not(key: str) -> None:
    assert job(job_without(key), **{key: ""}) == job(job_without(key)) == job(DESIGN, **{key: ""})


def job_without(key: str) -> str:
    document = yaml.safe_load(DESIGN)
    place = document["components"][0] if key.startswith("components") else document
    place.pop(key.rpartition(".")[2], None)
    return str(yaml.safe_dump(document))


def test_languages_by_ending() -> None:
    names = ["a.yaml", "a.YML", "dir.xml/a", "a.json", "a.jsdl", "a.xml", "a.rsl", "a.jdl", "-", ""]
    assert [language_of(name) for name in names] == [*["yaml"] * 4, "jsdl", "jsdl", "rsl", "jdl", "yaml", "yaml"]


def test_a_language_without_a_reader_is_refused() -> None:
    with pytest.raises(RequestError) as caught:
        read_job("x", "job.rsl", "/")
    assert caught.value.reason.code == "unknown_language"
    assert read_job(SMALL, "job.rsl", "/", readers={"rsl": read_document}).name == "job"


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20), max_size=5))
def test_arguments_arrive_as_they_were_given(arguments: list[str]) -> None:
    mapping = {"components": [{"processors": 1, "executable": "x", "arguments": arguments}]}
    assert from_mapping(mapping, "job.yaml", "/").components[0].arguments == tuple(arguments)
    assert read(yaml.safe_dump(mapping), "job.yaml", "/").components[0].arguments == tuple(arguments)


def test_what_is_staged_may_be_a_directory_or_a_pattern_and_go_elsewhere() -> None:
    text = """
components: [{processors: 1, executable: hostname}]
stage_in: [data/, "*.csv", "/x/**/y", ..]
stage_out: [result.npy, {path: logs/, to: "out/{component}"}, {path: "**/*.dat", to: "/scratch/{job}"}]
"""
    found = read(text, "job.yaml", "/work")
    assert found.stage_in == ("data/", "*.csv", "/x/**/y", "..")
    assert found.stage_out == ("result.npy", "logs", "**/*.dat")
    assert found.stage_out_to == (("logs", "out/{component}"), ("**/*.dat", "/scratch/{job}"))


@pytest.mark.parametrize(
    ("lines", "interactive", "priority", "retry_on"),
    [
        ("interactive: on", Interactive.TERMINAL, 0, ()),
        ("interactive: terminal", Interactive.TERMINAL, 0, ()),
        ("interactive: input\npriority: 10", Interactive.INPUT, 10, ()),
        ("interactive: yes\nretry_on: [lost]", Interactive.TERMINAL, 0, (RetryOn.LOST,)),
        ("interactive: false", None, 10, (RetryOn.LOST, RetryOn.KILLED)),
    ],
)
def test_an_interactive_job_goes_first_and_is_tried_once_unless_it_states_otherwise(
    lines: str, interactive: Interactive | None, priority: int, retry_on: tuple[RetryOn, ...]
) -> None:
    found = job(f"{SMALL}{lines}\n")
    assert (found.interactive, found.priority, found.retry_on) == (interactive, priority, retry_on)
    assert from_mapping(job_mapping(found), "again", found.directory) == found


def test_mpirun_has_no_terminal() -> None:
    with pytest.raises(RequestError, match="interactive is not for `launch: mpi`"):
        job(SMALL + "    launch: mpi\ninteractive: true\n")
