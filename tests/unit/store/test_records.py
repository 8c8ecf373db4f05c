"""Records of the store: every value comes back equal, equal values give equal texts, invalid texts are refused."""

import json
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koalapy.model.attempt import Attempt
from koalapy.model.commands import CancelAttempt, Command
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Job, without_attempts
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import JobState
from koalapy.model.units import Instant
from koalapy.model.work import KINDS, Work
from koalapy.store import records
from koalapy.store.contract import StoreConflict, StoreUnreadable

TEXTS = st.text(max_size=8) | st.binary(max_size=8).map(lambda octets: octets.decode("utf-8", "surrogateescape"))

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)

st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))  # a rank is finite

WISH = ComponentRequest(processors=2, executable="./a.out")
ATTEMPT = Attempt(id=AttemptId(JobId(7), 0, 1), cluster="vu", request=WISH)
JOB = Job(
    id=JobId(7),
    owner="mona",
    request=Request(name="poisson", components=(WISH,)),
    state=JobState.CLAIMING,
    position=3,
    submitted_at=Instant(5),
    attempts=(ATTEMPT,),
    numbers=(1,),
)


@given(st.one_of(*(st.from_type(each.value) for each in KINDS)))
def test_work_of_every_kind_comes_back_equal_a_job_without_its_attempts(work: Work) -> None:
    kind, text = records.dump_work(work)
    assert records.load_work(kind, text) == (without_attempts(work) if isinstance(work, Job) else work)
    assert records.dump_work(records.load_work(kind, text)) == (kind, text)
    assert text.isascii()


@given(st.one_of(*(st.from_type(kind) for kind in get_args(Command))))
def test_commands_come_back_equal(command: Command) -> None:
    kind, text = records.dump_command(command)
    assert records.load_command(kind, text) == command
    assert type(records.load_command(kind, text)) is type(command)


@given(st.from_type(Attempt))
def test_attempts_come_back_equal(attempt: Attempt) -> None:
    assert records.load_attempt(records.dump_attempt(attempt)) == attempt


@given(st.dictionaries(TEXTS, JSON, max_size=4))
def test_details_come_back_equal(details: dict[str, Any]) -> None:
    assert records.load_details(records.dump_details(details)) == details


@given(TEXTS, TEXTS)
def test_bytes_that_are_no_text_come_back_equal(name: str, argument: str) -> None:
    wish = replace(WISH, arguments=(argument,), environment=((name, argument),))
    job = replace(JOB, owner=name, key=argument, request=Request(name=name, components=(wish,)))
    assert records.load_work("job", records.dump_work(job)[1]) == without_attempts(job)


def test_values_come_back_with_their_types() -> None:
    job = records.load_work(*records.dump_work(JOB))
    assert isinstance(job, Job)
    assert isinstance(job.state, JobState)
    assert isinstance(job.attempts, tuple)
    command = CancelAttempt(cluster="vu", attempt=AttemptId(JobId(7), 0, 2), batch_id="9")
    loaded = records.load_command(*records.dump_command(command))
    assert isinstance(loaded, CancelAttempt)
    assert str(loaded.attempt) == "7.0.2"


def test_fields_are_written_in_the_order_of_their_declaration() -> None:
    fields = json.loads(records.dump_work(JOB)[1])
    assert list(fields) == list(Job.__dataclass_fields__)
    assert list(json.loads(records.dump_attempt(ATTEMPT))) == list(Attempt.__dataclass_fields__)


def test_a_record_without_a_field_that_was_added_later_gets_its_default() -> None:
    fields = json.loads(records.dump_work(JOB)[1])
    del fields["collecting"], fields["key"], fields["request"]["when_busy"]
    assert records.load_work("job", json.dumps(fields)) == without_attempts(JOB)
    fields = json.loads(records.dump_attempt(ATTEMPT))
    del fields["cancelling"], fields["request"]["account"]
    assert records.load_attempt(json.dumps(fields)) == ATTEMPT


@pytest.mark.parametrize("path", [(), ("request",)], ids=str)
def test_a_field_of_a_newer_version_is_refused(path: tuple[str, ...]) -> None:
    for text, load in (
        (records.dump_work(JOB)[1], partial(records.load_work, "job")),
        (records.dump_attempt(ATTEMPT), records.load_attempt),
    ):
        fields = json.loads(text)
        place = fields
        for step in path:
            place = place[step]
        place["colour"] = "red"
        with pytest.raises(StoreUnreadable, match="colour") as refusal:
            load(json.dumps(fields))
        assert "newer" in refusal.value.reason.advice


@pytest.mark.parametrize(
    "damage",
    [{"state": "sleeping"}, {"id": None}, {"submitted_at": "noon"}, {"components": {}}, {"request": []}],
    ids=lambda damage: next(iter(damage)),
)
def test_a_field_of_another_type_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(StoreUnreadable, match=next(iter(damage))):
        records.load_work("job", json.dumps(json.loads(records.dump_work(JOB)[1]) | damage))


def test_a_record_without_a_required_field_is_refused() -> None:
    fields = json.loads(records.dump_work(JOB)[1])
    del fields["owner"]
    with pytest.raises(StoreUnreadable, match="owner"):
        records.load_work("job", json.dumps(fields))


@pytest.mark.parametrize("text", ["", "{", "null", "[1]", '"job"'])
def test_a_text_that_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(StoreUnreadable, match="Job record"):
        records.load_work("job", text)
    with pytest.raises(StoreUnreadable, match="history record"):
        records.load_details(text)


def test_an_unknown_command_is_refused() -> None:
    with pytest.raises(StoreUnreadable, match="PaintComponent"):
        records.load_command("PaintComponent", "{}")


def test_a_value_that_json_cannot_express_is_refused_when_it_is_written() -> None:
    with pytest.raises(StoreConflict, match="history record cannot be written"):
        records.dump_details({"words": object()})
