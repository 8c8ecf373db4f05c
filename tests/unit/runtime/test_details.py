"""Answers with lies in their details are reasons of their cluster, whatever they lie about."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koalapy_adapters.messages import details, kcm

from koalapy.doctor.kcm_session import KcmSession
from koalapy.model.errors import ClusterError
from koalapy.model.identity import AttemptId, InstanceId, JobId, tag_of
from koalapy.model.units import Instant
from koalapy.runtime.session.exchange import done, understood
from koalapy.runtime.staging.upload import _lacking
from koalapy.runtime.unknown import UnknownTags

TAG = tag_of(InstanceId("zzzzz"), AttemptId(JobId(1), 0, 1))
LISTED = {"queue": [[TAG, "41", "running"]], "directories": [TAG], "more": False}
EXAMINED = {TAG: {"start_lock": "", "ended": False, "age_s": 5.0, "heartbeat_age_s": None}}
FOUND: dict[str, dict[str, Any]] = {
    "head": {"python": "/usr/bin/python3", "host": "head"},
    "shared": {"path": "/shared", "free_bytes": 1 << 60, "free_files": None},
    "batch": {"version": "slurm 22.05", "features": ["drmaa"], "command": "/usr/bin/sinfo"},
    "queue": {"name": "all", "default": True, "closed": "", "walltime_s": 60, "nodes": None, "processors": 5},
    "access": {"words": None, "launchers": {"environment": None, "named": False, "loose": None}},
    "span": {"options": {"processors": 2, "processors_per_node": 1}},
    "drmaa": {"library": None},
    "relay": {"kind": "tcp", "addresses": ["10.0.0.1"], "port": 4000},
}
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner))
OBJECTS = st.dictionaries(st.sampled_from([*LISTED, "failure", "missing", "free", "total", TAG]), JSON)


def unknown(*answers: Any) -> UnknownTags:
    """Over one cluster that answers so, one after the other, and the last again and again."""
    left = list(answers)

    def ask(cluster: str, request: Callable[[int], Any], timeout_s: float) -> Any:
        return kcm.Done(7, details=left.pop(0) if len(left) > 1 else left[0])

    return UnknownTags(InstanceId("abcde"), ["evil"], ask, lambda ids: [], lambda: Instant(5))


def test_what_is_sound_is_accepted() -> None:
    (survey,) = unknown(LISTED, EXAMINED).look()
    assert survey.trouble is None
    assert [each.tag for each in survey.tags] == [TAG]


@pytest.mark.parametrize("field", LISTED)
@pytest.mark.parametrize("wrong", [None, 5, [[]], [5], "x", {"a": 1}], ids=repr)
def test_a_lie_about_tags_is_the_reason_of_that_cluster(field: str, wrong: Any) -> None:
    (survey,) = unknown({**LISTED, field: wrong}).look()
    assert survey.trouble is not None
    assert (survey.trouble.code, survey.trouble.whose) == ("garbled", "cluster")
    assert f"details.{field}" in survey.trouble.message


@pytest.mark.parametrize("field", EXAMINED[TAG])
@pytest.mark.parametrize("wrong", [5e300, -1, [], {}], ids=repr)
def test_a_lie_about_directories_is_too(field: str, wrong: Any) -> None:
    (survey,) = unknown(LISTED, {TAG: {**EXAMINED[TAG], field: wrong}}).look()
    assert survey.trouble is not None
    assert survey.trouble.code == "garbled"
    assert f".{field}" in survey.trouble.message


@given(OBJECTS, OBJECTS)
@settings(max_examples=200)
def test_no_answer_makes_a_survey_fail(first: dict[str, Any], second: dict[str, Any]) -> None:
    (alone,) = unknown(first).look()
    (survey,) = unknown(LISTED, second).look()
    assert alone.trouble is None or alone.trouble.code == "garbled"
    assert survey.trouble is None or survey.trouble.code == "garbled"


@pytest.mark.parametrize("page", [[], [TAG], ["no tag"]])
def test_pages_that_lead_nowhere_are_not_asked_for_again(page: list[str]) -> None:
    asked: list[str] = []

    def ask(cluster: str, request: Callable[[int], Any], timeout_s: float) -> Any:
        message = request(7)
        asked.append(type(message).__name__)
        return kcm.Done(7, details={**LISTED, "directories": page, "more": True})

    UnknownTags(InstanceId("abcde"), ["evil"], ask, lambda ids: [], lambda: Instant(5)).look()
    assert asked.count("Tags") <= 2


def test_an_answer_of_another_type_is_none() -> None:
    with pytest.raises(ClusterError, match="it answers with Pong"):
        done(kcm.Pong(1, 5))


# ---- what lacks where files are sent


@pytest.mark.parametrize(
    "reported",
    [
        {},
        {"missing": None},
        {"missing": [[0]]},
        {"missing": [["0", 0]]},
        {"missing": [[-1, 0]]},
        {"missing": [], "free": "much"},
        {"missing": [], "total": []},
    ],
    ids=repr,
)
def test_a_lie_about_files_and_room(reported: Any) -> None:
    with pytest.raises(ClusterError, match="cannot be understood: details"):
        understood(details.wanted, reported)


def test_files_that_it_was_not_asked_of() -> None:
    with pytest.raises(ClusterError, match="is invalid"):
        _lacking([], [[0, 0]])


# ---- what a head node finds


def session(answer: Any) -> KcmSession:
    """Return a session whose agent gives this answer to every request."""
    made = object.__new__(KcmSession)
    made.ask = lambda message, timeout_s=0.0: answer  # type: ignore[method-assign]
    return made


@pytest.mark.parametrize("check", FOUND)
def test_what_a_head_node_finds_is_what_it_reported(check: str) -> None:
    found = session(kcm.Done(1, details=FOUND[check])).diagnose(check)
    assert {name: found[name] for name in FOUND[check]} == FOUND[check]


def test_of_a_failure_its_reason_is() -> None:
    failure = {"code": "no_such_queue", "whose": "cluster", "message": "There is none."}
    found = session(kcm.Done(1, details={"failure": failure, "value": "all"})).diagnose("queue")
    assert (found["failure"], found["value"]) == (failure, "all")


@pytest.mark.parametrize(
    ("check", "field"), [(check, field) for check, fields in FOUND.items() for field in fields if field != "host"]
)
@pytest.mark.parametrize("wrong", [-5.5, [{}], {"a": 1}], ids=repr)
def test_a_lie_of_a_head_node_is_a_reason(check: str, field: str, wrong: Any) -> None:
    with pytest.raises(ClusterError, match=f"details.*{field}"):
        session(kcm.Done(1, details={**FOUND[check], field: wrong})).diagnose(check)


@given(st.sampled_from(sorted(FOUND)), OBJECTS)
@settings(max_examples=200)
def test_nothing_that_a_head_node_reports_is_more_than_a_reason(check: str, said: dict[str, Any]) -> None:
    """Something is missing of all of them; a failure, of which nothing must be there, may be reported."""
    if not is_failure(said):
        with pytest.raises(ClusterError, match="details"):
            session(kcm.Done(1, details=said)).diagnose(check)


def is_failure(said: dict[str, Any]) -> bool:
    return isinstance(said.get("failure"), dict)
