"""Mistakes in a job file: each is refused with file, line, key and advice, and so is whatever garbage comes."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from job_languages import read_native as read

from koalapy.languages import from_mapping
from koalapy.languages.reading import json_schema
from koalapy.model.errors import Reason, RequestError

CLUSTERS = ("vu", "Delft")
SMALL = "components:\n  - processors: 4\n    executable: hostname\n"


def refused(text: str | bytes, overrides: dict[str, str] | None = None) -> Reason:
    with pytest.raises(RequestError) as caught:
        read(text, "job.yaml", "/home/me", CLUSTERS, overrides)
    return caught.value.reason


def in_component(line: str) -> str:
    return f"{SMALL}    {line}\n"


BAD_FILES = [
    pytest.param(b"", "empty_file", "job.yaml is empty.", id="empty"),
    pytest.param(b"\x00\x01\x02", "not_text", "binary", id="binary"),
    pytest.param(b"a" * 10_000_001, "too_large", "10,000,001", id="huge"),
    pytest.param("components: [", "syntax", "job.yaml:1:13: a list or mapping is opened", id="malformed"),
    pytest.param("hello", "not_a_mapping", "job.yaml:1:1: the file holds", id="text"),
    pytest.param(SMALL + "components: []\n", "duplicate_key", "after line 1", id="twice"),
    pytest.param("name: x\n", "missing_key", "components is missing", id="no components"),
    pytest.param("components: []\n", "wrong_value", "components is empty", id="empty list"),
    pytest.param("components: {processors: 1}\n", "wrong_value", "a mapping where a list belongs", id="no list"),
    pytest.param("components: [4]\n", "wrong_value", "components.0 is '4'", id="no mapping"),
    pytest.param(
        "components:\n" + "- {processors: 1, executable: x}\n" * 1025, "too_many", "1025 components", id="1025"
    ),
    pytest.param(
        "components:\n- {executable: x}\n", "missing_key", "job.yaml:2:3: components.0.processors", id="no number"
    ),
    pytest.param(
        "components:\n- {processors: 1}\n", "missing_key", "components.0.executable is missing", id="no program"
    ),
    pytest.param(SMALL + "prioritty: 1\n", "unknown_key", "job.yaml:4:1: prioritty is not a known key", id="unknown"),
    pytest.param(in_component("gpu: 1"), "unknown_key", "job.yaml:4:5: components.0.gpu is not", id="unknown, inside"),
    pytest.param(
        in_component("cluster: mars"), "unknown_cluster", "'mars', which the grid does not have", id="cluster"
    ),
    pytest.param(SMALL + "koala: 2\n", "other_version", "koala is 2", id="version"),
    pytest.param(in_component("arguments: [*.dat]"), "syntax", "job.yaml:4:18: an & or *", id="star"),
    pytest.param(in_component("arguments: [*dat]"), "alias", "job.yaml:4:17: *dat is an alias", id="alias"),
    pytest.param(in_component(f"arguments: [{'x' * 300_000}]"), "too_large", "components.0 has", id="much to pass"),
]


@pytest.mark.parametrize(("text", "code", "words"), BAD_FILES)
def test_bad_files(text: str | bytes, code: str, words: str) -> None:
    reason = refused(text)
    assert reason.code == code
    assert words in reason.message
    assert reason.message.startswith("job.yaml")
    assert reason.advice
    assert "\n" not in reason.message


PROCESSORS = [
    "0",
    "-4",
    "1000001",
    "9" * 30,
    "9" * 5000,
    "8.0",
    "true",
    "four",
    "[4]",
    "'4'",
    "",
    "1e3",
    "0x8",
    "08",
    "1_000",
]


@pytest.mark.parametrize("written", PROCESSORS, ids=lambda text: text[:9] or "nothing")
def test_bad_processors(written: str) -> None:
    reason = refused(f"components:\n- executable: x\n  processors: {written}\n")
    assert reason.message.startswith("job.yaml:3:3: components.0.processors is ")
    assert reason.advice.startswith("Write ")


BAD_IN_COMPONENT = [
    ("walltime: 0s", "walltime is 0s, shorter than 1s"),
    ("walltime: 600", "walltime is '600', not a duration"),
    ("walltime: 01:00:00", "walltime is '01:00:00', not a duration"),
    ("walltime: -1h", "not a duration"),
    ("walltime: 9999d", "longer than"),
    ("launch: per-procesor", "launch is 'per-procesor'"),
    ("processors_per_node: 5", "processors_per_node is 5, more than the component's 4 processors"),
    ("processors_per_node: 0", "less than 1"),
    ("threads_per_process: 3", "does not divide processors (4)"),
    ("threads_per_process: 0", "less than 1"),
    ("{processors_per_node: 3, threads_per_process: 2}", "does not divide processors_per_node (3)"),
    ("memory_per_processor: 512", "not a size"),
    ("memory_per_processor: 1K", "too small"),
    ("memory_per_processor: 9999999T", "too large"),
    ("memory_per_processor: " + "9" * 5000 + "G", "not a size"),
    ("gpus: -1", "less than 0"),
    ("exclusive: maybe", "not a truth value"),
    ("environment: {a-b: 1}", "environment.a-b is not the name of an environment variable"),
    ("environment: {KOALA_RANK: 1}", "a name that koalapy sets"),
    ("environment: {A: }", "environment.A is nothing where text belongs"),
    ("environment: {A: [1]}", "a list where text belongs"),
    ('environment: {A: "\\0"}', "NUL"),
    ("environment: [A]", "where keys and values belong"),
    ("arguments: -n 4", "where a list belongs"),
    ("arguments: [~]", "arguments.0 is nothing where text belongs"),
    ("arguments: [[a]]", "arguments.0 is a list"),
    ('arguments: ["a\\0b"]', "arguments.0 holds a NUL"),
    ('setup: ["a\\nb"]', "setup.0 holds a line break"),
    ("native: --x", "where a list belongs"),
    ("account: -x", "not a valid name"),
    ("queue: a b", "not a valid name"),
    ("qos: ''", "qos is empty"),
    ("optional: true", "all optional"),
    ("launch: mpirun", "launch is 'mpirun'"),
    ("mpi: openmpi", "mpi is for an MPI program"),
]


@pytest.mark.parametrize(("line", "words"), BAD_IN_COMPONENT, ids=[line[:30] for line, _ in BAD_IN_COMPONENT])
def test_bad_values_of_a_component(line: str, words: str) -> None:
    both = line.strip("{}").replace(", threads", "\n    threads") if line.startswith("{") else line
    reason = refused(in_component(both))
    assert re.match(r"job\.yaml:\d+:\d+: ", reason.message)
    assert words in reason.message
    assert reason.advice


@pytest.mark.parametrize(
    ("executable", "words"),
    [
        ("''", "is empty"),
        ("", "nothing"),
        ("../x", "outside the attempt's directory"),
        ("a/../../x", "outside the attempt's directory"),
        ("bin/", "a directory"),
        ("/usr/..", "a directory"),
        ("~/x", "no shell expands"),
        ('"a\\0b"', "NUL"),
        ("[a]", "a list"),
        ("x" * 5000, "more than 4096 bytes"),
    ],
)
def test_bad_executables(executable: str, words: str) -> None:
    assert words in refused(f"components:\n- processors: 1\n  executable: {executable}\n").message


BAD_IN_JOB = [
    ("priority: 21", "priority is 21, more than 20"),
    ("priority: -1", "less than 0"),
    ("priority: high", "not a whole number"),
    ("when_busy: never", "when_busy is 'never'"),
    ("retry_on: [lost, gone]", "retry_on.1 is 'gone'"),
    ("retry_on: lost", "where a list belongs"),
    ("communication: no", "communication is 'no'"),
    ("name: ''", "name is empty"),
    ("expires: 0s", "expires is 0s, shorter than 1s"),
    ("expires: soon", "expires is 'soon', neither an instant nor a duration"),
    ("begin: 20:00", "begin is '20:00', neither an instant nor a duration"),
    ("begin: 2030-02-31T20:00", "begin is '2030-02-31T20:00', which is no instant"),
    ("begin: 0001-01-01", "begin is '0001-01-01', which is no instant"),
    ("claim_before: 5m", "claim_before needs a begin"),
    ("claim_before: 5m\nbegin: 2h", "claim_before is for a job of several components"),
    ("begin: ++2h", "begin is '++2h', neither an instant nor a duration"),
    ("begin: -2h", "begin is '-2h', neither an instant nor a duration"),
    ("begin: [2h]", "begin is a list, neither an instant nor a duration"),
    ("begin: 9999d", "begin is '9999d', neither an instant nor a duration"),
    ("barrier: 1h", "where keys and values belong"),
    ("barrier: {wait: 5}", "barrier.wait is '5', not a duration"),
    ("barrier: {fill: sweep}", "barrier.fill is 'sweep'"),
    ("barrier: {timeout: 5m}", "barrier.timeout is not a known key"),
    *[
        (f"barrier: {{processor_hours: {written}}}", f"barrier.processor_hours {words}")
        for written, words in {
            "0": "is 0",
            "0.0000000001": "is 0",
            "1e9": "is '1e9', not a number",
            "100000001": "is more than 100,000,000",
            "-1": "is '-1', not a number",
            "4h": "is '4h', not a number",
            "nan": "is 'nan', not a number",
            "'4'": "is '4', not a number",
            "true": "is 'true', not a number",
            "[1]": "is a list, not a number",
        }.items()
    ],
    ('name: "a\\nb"', "line break"),
    ("name: " + "x" * 200, "200 characters"),
    ("stage_in: [a/*/../b]", "`..` after a pattern"),
    ("stage_out: [{path: a, to: ../b}]", "outside the job's directory"),
    ("stage_out: [{path: a, to: 'b/{rank}'}]", "unknown {rank}"),
    ("stage_out: [{path: /a}]", "outside the job's directory"),
    ("stage_out: [{to: b}]", "path"),
    ("stage_in: ['']", "is empty"),
    ("stage_in: [~/a]", "no shell expands"),
    ("stage_in: [a, /x/a]", "where another file lies already"),
    ("stage_in: [a, ./a]", "where another file lies already"),
    ("stage_in: [/x/a, a/b]", "where another file lies already"),
    ("stage_in: [a/b, /x/a]", "where another file lies already"),
    ("stage_in: a", "where a list belongs"),
    (f"stage_in: [{','.join(map(str, range(1001)))}]", "1001 files"),
    (f"stage_out: [{','.join(f'{n:04000}' for n in range(99))}]", "paths of more than"),
    ("stage_out: [/a]", "outside the job's directory"),
    ("stage_out: [../a]", "outside the job's directory"),
    ("stage_out: [a/../../b]", "outside the job's directory"),
    ('stage_out: ["a\\0"]', "NUL"),
    ("stage_out: [a, a]", "where another file lies already"),
]


@pytest.mark.parametrize(("line", "words"), BAD_IN_JOB, ids=[line[:30] for line, _ in BAD_IN_JOB])
def test_bad_values_of_a_job(line: str, words: str) -> None:
    reason = refused(f"{SMALL}{line}\n")
    assert re.match(r"job\.yaml:4:\d+: ", reason.message)
    assert words in reason.message


def test_very_many_mistakes_are_counted() -> None:
    reason = refused(SMALL + "".join(f"k{number}: 1\n" for number in range(50_000)))
    assert reason.message.startswith("job.yaml has 50000 mistakes:\n  job.yaml:4:1: k0 is not a known key.")
    assert reason.message.endswith("and 49980 more.")


def test_the_nearest_cluster_is_named() -> None:
    assert refused(in_component("cluster: detlf")).advice == "Did you mean Delft?"
    assert refused(in_component("cluster: mars")).advice == "Write one of vu or Delft."


def test_the_nearest_key_is_named() -> None:
    assert refused(in_component("wall_time: 1h")).advice == "Did you mean walltime?"


@pytest.mark.parametrize(
    ("key", "value", "code", "words"),
    [
        ("priority", "99", "wrong_value", "-o priority: priority is 99, more than 20."),
        ("prioritty", "1", "unknown_key", "-o prioritty: prioritty is not a known key."),
        ("components.0.processors", "0", "wrong_value", "-o components.0.processors: components.0.processors is 0"),
        ("components.7.processors", "1", "unknown_key", "no place of this name"),
        ("components.-1.processors", "1", "unknown_key", "no place of this name"),
        ("components.99999999999999999999.processors", "1", "unknown_key", "no place of this name"),
        ("components.processors", "1", "unknown_key", "no place of this name"),
        ("components.0.executable.x", "1", "unknown_key", "no place of this name"),
        ("prioritty", "", "unknown_key", "-o prioritty: prioritty is not a known key."),
        ("components.0.procesors", "", "unknown_key", "components.0.procesors is not a known key."),
        ("components.0.processors", "", "missing_key", "processors"),
        ("components.7.processors", "", "unknown_key", "no place of this name"),
        ("components..x", "1", "unknown_key", "no place of this name"),
        ("", "1", "unknown_key", "no place of this name"),
        ("stage_in", "[a", "syntax", "-o stage_in:"),
        ("stage_in", "[*a]", "alias", "-o stage_in:"),
        ("stage_in", "a", "wrong_value", "-o stage_in: stage_in is 'a' where a list belongs."),
        ("name", "a\0b", "wrong_value", "NUL"),
    ],
)
def test_bad_overrides(key: str, value: str, code: str, words: str) -> None:
    reason = refused(SMALL, {key: value})
    assert reason.code == code
    assert words in reason.message


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=12)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3))
job_keys = st.sampled_from(sorted(json_schema()["properties"]))
component_keys = st.sampled_from(sorted(json_schema()["$defs"]["ComponentFile"]["properties"]))


def check(reason: Reason) -> None:
    assert reason.message.startswith(("job.yaml", "-o "))
    assert reason.advice
    assert str(reason).encode()
    assert all(line.isprintable() for line in reason.message.split("\n"))


@pytest.mark.parametrize("data", [b"& (executable = caf\xe9)", b"\x00"], ids=["not UTF-8", "binary"])
def test_the_advice_for_a_text_of_an_unknown_language_names_none(data: bytes) -> None:
    with pytest.raises(RequestError) as raised:
        read(data, "job", "/", CLUSTERS)
    assert raised.value.reason.advice == "Save the file as text in UTF-8."


def reported_or_read(text: str | bytes, overrides: dict[str, str] | None = None) -> None:
    try:
        read(text, "job.yaml", "/", CLUSTERS, overrides)
    except RequestError as error:
        check(error.reason)


@given(st.binary(max_size=300))
def test_garbage_bytes_are_refused(data: bytes) -> None:
    reported_or_read(data)


@given(st.text(max_size=100) | st.text("ab:-?[]{}&*!|>'\"%@`#,\\ \t\n0~.<", max_size=60))
def test_garbage_text_is_refused(text: str) -> None:
    reported_or_read(text)
    reported_or_read(SMALL + text)


@given(st.dictionaries(st.text(max_size=12) | job_keys, st.text(max_size=12), max_size=3))
def test_garbage_overrides_are_refused(overrides: dict[str, str]) -> None:
    reported_or_read(SMALL, overrides)


@given(
    st.dictionaries(component_keys | words, values, max_size=4), st.dictionaries(job_keys | words, values, max_size=2)
)
@settings(max_examples=200)
def test_garbage_values_are_refused(component: dict[str, Any], top: dict[str, Any]) -> None:
    mapping = {"components": [{"processors": 4, "executable": "x"} | component]} | top
    try:
        request = from_mapping(mapping, "job.yaml", "/", CLUSTERS)
    except RequestError as error:
        check(error.reason)
    else:
        assert all(each.processors >= 1 for each in request.components)
        assert json.dumps(request.stage_in)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ('components: [{processors: 1, executable: x, arguments: "-a -b"}]', "Write it in brackets: [-a, -b]."),
        (
            "components: [{processors: 1, executable: x, priority: 3}]",
            "priority belongs to the whole file: write it at the left, outside of components.0.",
        ),
    ],
)
def test_advice_is_what_helps(text: str, advice: str) -> None:
    assert refused(text).advice == advice
