"""The border between koalad and clusters: the type and the bounds of every field of every message."""

import json
import math
from typing import Any

import pytest
from koalapy_adapters import messages as wire
from koalapy_adapters.messages import fields, kcm, koalad
from koalapy_adapters.messages import fields as fields_messages
from koalapy_adapters.messages import kcm as kcm_messages

TAG = "kabcde000000001"
FAILURE = kcm_messages.Failure("down", "transient", "It does not answer.")._asdict()
MESSAGES: list[Any] = [
    kcm_messages.Welcome(1, "1.0", 5, "3.6.8", "head", "slurm 23", ["a"], FAILURE, 0, 7, [TAG]),
    kcm_messages.Submitted(1, TAG, "17"),
    kcm_messages.Refused(1, FAILURE),
    kcm_messages.Done(1, True, {"total": 5, "names": ["a", {"b": None}], "load": 0.5}),
    kcm_messages.Fetched(1, 10, 0o644, "ab"),
    kcm_messages.Pong(1, 5, 0.25),
    kcm_messages.Event(1, {"type": "cleaned_up"}),
    kcm_messages.Measured(5, 8, 4, 2, 2, 0, [TAG], [TAG], [[4, 2]], "core", 8, 4, 0, False, [[4, 1]]),
    kcm_messages.MeasureFailed(5, FAILURE),
    kcm_messages.BatchStatus(TAG, "17", 5, "running", "why", "held", 0, "exited", 1),
    kcm_messages.Report(TAG, "17", "ended", [["n1", "10.0.0.1", 2]], 1, 2, 3, 4, 0, "exited", FAILURE),
    kcm_messages.CleanedUp(TAG, 5),
    kcm_messages.Stuck(TAG, 5, FAILURE),
    kcm_messages.PutKey(TAG, "key", "any\x1bvalue\n"),
    kcm_messages.ParametersEnded(3, TAG, [[1, 0, "exited", "n1", 0, 5, 6, 0, 1, 0, 0]]),
    kcm_messages.ParametersReturned(3, [[1, 5]], [[1, 2]]),
    kcm_messages.ParametersWanted(3, 5),
    kcm_messages.LaunchersSeen([[TAG, 2, 5]]),
    kcm_messages.LauncherSuspected(TAG, "n1"),
]
NEVER: list[Any] = [1.5, math.nan, math.inf, 1 << 63, 10**30, -(1 << 70), [[]], {"a": []}, [None], object()]
FIELDS = [(message, field) for message in MESSAGES for field in message._fields]


def on_the_wire(message: Any) -> Any:
    return json.loads(json.dumps(wire.to_json(message)))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_what_is_sound_arrives_as_it_was_sent(message: Any) -> None:
    assert wire.from_json(on_the_wire(message), wire.FROM_KCM) == message
    assert wire.is_sound(message)


def test_all_that_a_kcm_sends_is_tried_here() -> None:
    assert {type(message) for message in MESSAGES} == set(kcm.MESSAGES)


@pytest.mark.parametrize(("message", "field"), FIELDS, ids=lambda each: each if isinstance(each, str) else "")
def test_no_field_takes_a_value_of_another_type(message: Any, field: str) -> None:
    """The error names message and field, whatever the value is."""
    kind = wire.to_json(message)["type"]
    allowed = {"cost": 1.5, "error": {"a": []}, "details": {"a": []}, "body": {"a": []}}
    for value in [value for value in NEVER if field not in allowed or value != allowed[field]]:
        with pytest.raises(fields_messages.MessageError, match=rf"^{kind}\.{field}") as caught:
            wire.from_json({**on_the_wire(message), field: value})
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("message", "wrong", "place"),
    [
        (MESSAGES[7], {"idle": None}, "measured.idle"),
        (MESSAGES[7], {"idle": -1}, "measured.idle"),
        (MESSAGES[7], {"total": 10**9 + 1}, "measured.total"),
        (MESSAGES[7], {"idle": True}, "measured.idle"),
        (MESSAGES[7], {"free_nodes": [[4, 2], [4]]}, "measured.free_nodes[1]"),
        (MESSAGES[7], {"allocated": [TAG] * 10 + ["\x1b[2J"]}, "measured.allocated[10]"),
        (MESSAGES[7], {"allocated": [TAG] * 10 + [5]}, "measured.allocated[10]"),
        (MESSAGES[7], {"allocated": [TAG] * 200_001}, "measured.allocated"),
        (MESSAGES[10], {"batch_id": {"a": 1}}, "report.batch_id"),
        (MESSAGES[10], {"batch_id": "x" * 257}, "report.batch_id"),
        (MESSAGES[10], {"exit_status": "x"}, "report.exit_status"),
        (MESSAGES[10], {"exit_status": 10**30}, "report.exit_status"),
        (MESSAGES[10], {"nodes": [["n1", "10.0.0.1", -1]]}, "report.nodes[0][2]"),
        (MESSAGES[10], {"nodes": [["n1", "10.0.0.1"]]}, "report.nodes[0]"),
        (MESSAGES[10], {"nodes": [["n1", "10.0.0.1", 1]] * 9 + [["n1", None, 1]]}, "report.nodes[9][1]"),
        (MESSAGES[10], {"error": {"code": ["down"]}}, "report.error.code"),
        (MESSAGES[10], {"phase": "\udc80"}, "report.phase"),
        (MESSAGES[0], {"newest_number": 1 << 62}, "welcome.newest_number"),
        (MESSAGES[6], {"number": "1"}, "event.number"),
        (MESSAGES[6], {"number": 0}, "event.number"),
        (MESSAGES[14], {"results": [[*MESSAGES[14].results[0][:-1], -1]]}, "parameters_ended.results[0][10]"),
        (MESSAGES[15], {"ranges": [[1, "5"]]}, "parameters_returned.ranges[0][1]"),
        (MESSAGES[15], {"ranges": [[1, 1 << 53], [1, 1 << 53]]}, "parameters_returned.ranges"),
        (MESSAGES[13], {"value": "x" * ((1 << 16) + 1)}, "put_key.value"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_bounds(message: Any, wrong: dict[str, Any], place: str) -> None:
    with pytest.raises(fields_messages.MessageError) as caught:
        wire.from_json({**on_the_wire(message), **wrong})
    assert str(caught.value).startswith(place + ":")


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_field_that_must_be_there_and_is_not(message: Any) -> None:
    for field in set(message._fields) - set(message._field_defaults):
        reported = on_the_wire(message)
        del reported[field]
        with pytest.raises(fields_messages.MessageError, match=rf"\.{field}: is missing"):
            wire.from_json(reported)


def test_fields_of_a_newer_release_are_ignored() -> None:
    release = koalad.Release(5, TAG, 0, [[0, "10.0.0.1", 4]])
    assert wire.from_json({**on_the_wire(release), "ranks": [1, 2]}) == release
    failed = kcm_messages.MeasureFailed(5, dict(FAILURE, since=5))
    assert wire.from_json(on_the_wire(failed)) == kcm_messages.MeasureFailed(5, FAILURE)


@pytest.mark.parametrize("data", [{"type": []}, {"type": {}}, {"type": None}, {}, [], None, 5, "gone", {"type": "x"}])
def test_what_is_no_message(data: Any) -> None:
    with pytest.raises(fields_messages.MessageError):
        wire.from_json(data)


def test_each_side_receives_what_is_for_it_alone() -> None:
    with pytest.raises(fields_messages.MessageError):
        wire.from_json(on_the_wire(koalad.Ping(1, 5)), wire.FROM_KCM)
    with pytest.raises(fields_messages.MessageError):
        wire.from_json(on_the_wire(MESSAGES[0]), wire.EVENTS)


def test_what_is_only_shown_is_made_fit_to_be_shown() -> None:
    """Batch systems write what they like: it may end no session, and reach no terminal."""
    words = "one\r\n\x1b[31mtwo\x1b]0;owned\a\u202e\ud800\tthree"
    reported = {"code": "down", "whose": "transient", "message": words, "words": words * 10_000}
    error = wire.from_json({"type": "measure_failed", "at": 5, "error": reported}).error
    assert error["message"] == "one  \\x1b[31mtwo\\x1b]0;owned\\x07\\u202e\\ud800 three"
    assert error["words"].startswith("one\n\\x1b[31mtwo\\x1b]0;owned\\x07\\u202e\\ud800\tthree")
    assert len(error["words"]) < 1 << 19


def test_details_are_plain_and_not_deep() -> None:
    deep: Any = []
    for _ in range(100):
        deep = [deep]
    for value in (deep, math.nan, math.inf, 1 << 64, object()):
        with pytest.raises(fields_messages.MessageError, match=r"^done\.details"):
            wire.from_json({"type": "done", "id": 1, "details": {"a": [{"b": value}]}})


def test_the_room_of_a_large_file_system_is_reported() -> None:
    """The file has 64 PiB, which is more than 2**53 bytes."""
    reported = {"missing": [], "free": 1 << 56, "total": 1 << 56}
    assert wire.from_json({"type": "done", "id": 1, "details": reported}).details == reported


def test_annotations_that_mean_nothing_are_refused() -> None:
    with pytest.raises(TypeError):
        fields._check_of(object)
