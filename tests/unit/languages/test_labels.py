"""Labels of jobs: what may be one, in a job file and beside it, how jobs are found by them, and what is refused."""

from typing import Any

import pytest
from job_languages import read_native as read

from koalapy.cli.options import labels_of
from koalapy.languages import from_mapping
from koalapy.languages.mapping import job_mapping
from koalapy.model.errors import RequestError
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.labels import has_labels, joined, wanted_label
from koalapy.model.request import Request
from koalapy.model.states import JobState
from koalapy.model.units import Instant
from koalapy.store.records import dump_work, load_work

COMPONENTS = "components:\n  - {processors: 4, executable: hostname}\n"
LABELS = (("project", "poisson"), ("run", "7"))
KEY_ADVICE = "Use letters, digits, '.', '_', '-' and '/', and begin with a letter or digit."
ONE_LINE = "Write it on one line, without control characters."


def job(text: str) -> Request:
    return read(COMPONENTS + text, "job.yaml", "/home/me")


def message(error: RequestError) -> str:
    return f"{error.reason.message} {error.reason.advice}"


BAD = [
    pytest.param("a" * 64, "x", "has a key of 64 characters, more than 63. Write a shorter key.", id="long key"),
    pytest.param("-x", "y", f"has an invalid key. {KEY_ADVICE}", id="dash"),
    pytest.param("a b", "y", f"has an invalid key. {KEY_ADVICE}", id="space"),
    pytest.param("é", "y", f"has an invalid key. {KEY_ADVICE}", id="accent"),
    pytest.param("a\x1b", "y", f"has an invalid key. {KEY_ADVICE}", id="control character in a key"),
    pytest.param("a", "", "has no value. Write a value, or remove the label.", id="no value"),
    pytest.param(
        "a", "v" * 256, "has a value of 256 characters, more than 255. Write a shorter value.", id="long value"
    ),
    pytest.param("a", "b\x1b[2J", f"has a line break or control character in its value. {ONE_LINE}", id="escape"),
    pytest.param("a", "b\nc", f"has a line break or control character in its value. {ONE_LINE}", id="lines"),
    pytest.param(
        "a", "b\u202ec", f"has a line break or control character in its value. {ONE_LINE}", id="right to left"
    ),
]


@pytest.mark.parametrize(("key", "value", "words"), BAD)
def test_a_label_that_is_none_is_refused_in_a_sentence(key: str, value: str, words: str) -> None:
    with pytest.raises(RequestError) as in_file:
        from_mapping(
            {"components": [{"processors": 1, "executable": "true"}], "labels": {key: value}}, "job.yaml", "/home/me"
        )
    assert in_file.value.reason.code == "bad_label"
    assert message(in_file.value).startswith("job.yaml: labels.")
    assert message(in_file.value).endswith(words)
    with pytest.raises(RequestError) as beside:
        joined((), [(key, value)])
    assert beside.value.reason.code == "bad_label"
    assert message(beside.value).startswith("The label '")
    assert message(beside.value).endswith(words)


def test_the_line_of_a_label_is_named() -> None:
    with pytest.raises(RequestError) as caught:
        job("labels:\n  fine: 1\n  not fine: 2\n")
    assert message(caught.value) == f"job.yaml:5:3: labels.not fine has an invalid key. {KEY_ADVICE}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("labels: [a, b]", "labels is a list where keys and values belong."),
        ("labels: {a: [b]}", "labels.a is a list where text belongs."),
        ("labels: {a: null}", "labels.a has no value."),
        ("labels: {a: 1, a: 2}", "labels.a stands here a second time"),
    ],
)
def test_what_is_no_mapping_of_texts_is_refused(text: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        job(text)
    assert words in message(caught.value)


def test_a_job_has_at_most_32_labels_wherever_they_come_from() -> None:
    many = [(f"k{number}", "v") for number in range(33)]
    lines = "".join(f"  {key}: {value}\n" for key, value in many)
    with pytest.raises(RequestError) as caught:
        job(f"labels:\n{lines}")
    assert message(caught.value) == "job.yaml:3:1: labels has 33 labels, more than 32. Remove some."
    assert joined(tuple(many[:31]), many[31:32]) == tuple(many[:32])
    with pytest.raises(RequestError) as caught:
        joined(tuple(many[:32]), many[32:])
    assert message(caught.value) == "The job has 33 labels, more than 32. Remove some."


def test_labels_beside_the_file_replace_those_of_the_same_key() -> None:
    assert joined(LABELS, [("run", "8"), ("by", "me")]) == (("project", "poisson"), ("run", "8"), ("by", "me"))


def test_labels_are_written_as_a_job_file_has_them() -> None:
    found = job("labels: {project: poisson, run: 7}\n")
    assert found.labels == LABELS
    assert job_mapping(found)["labels"] == dict(LABELS)
    assert "labels" not in job_mapping(job(""))
    again: Any = from_mapping(job_mapping(found), "job 1", "/home/me")
    assert again.labels == LABELS


def test_labels_are_kept_in_the_record_and_older_records_have_none() -> None:
    kept = Job(
        id=JobId(1),
        owner="me",
        request=job("labels: {project: poisson, run: 7}\n"),
        state=JobState.WAITING,
        position=1,
        submitted_at=Instant(0),
    )
    kind, text = dump_work(kept)
    assert load_work(kind, text) == kept
    older = load_work(kind, text.replace(',"labels":[["project","poisson"],["run","7"]]', ""))
    assert older.request.labels == ()


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ([], True),
        (["project"], True),
        (["project=poisson"], True),
        (["project=poisson", "run=7"], True),
        (["project=poisson", "run=8"], False),
        (["user"], False),
        (["poisson"], False),
    ],
)
def test_a_job_is_found_by_all_labels_that_are_asked_for(wanted: list[str], found: bool) -> None:
    assert has_labels(LABELS, [wanted_label(each) for each in wanted]) is found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "The label '' has an invalid key."),
        ("=x", "The label '=x' has an invalid key."),
        ("a=", "The label 'a=' has no value."),
        ("a b", "The label 'a b' has an invalid key."),
    ],
)
def test_a_label_that_no_job_can_have_is_not_looked_for(text: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        wanted_label(text)
    assert message(caught.value).startswith(words)
    assert message(caught.value).endswith("The form is KEY or KEY=VALUE.")


def test_a_command_lines_labels() -> None:
    assert labels_of(["project=poisson", "query=a=b"]) == {"project": "poisson", "query": "a=b"}
    with pytest.raises(RequestError) as caught:
        labels_of(["project"])
    assert message(caught.value) == "--label 'project' is not KEY=VALUE. Write --label project=poisson."
    with pytest.raises(RequestError) as caught:
        labels_of(["a=1", "a=2"])
    assert message(caught.value) == "--label 'a' is given twice. Give each key once."
