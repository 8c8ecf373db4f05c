"""The readings of a dialect from recorded answers: whole, cut off anywhere, and replaced by nonsense."""

from importlib import import_module
from typing import Any

from koalapy.common.registry import registered
from koalapy_adapters.contract.calls import Json
from koalapy_adapters.contract.recordings import Recording
from koalapy_adapters.errors import Result

CUTS = 40  # of one answer: at its lines' ends and beside them first, then evenly


def test_it_is_read_as_when_it_was_recorded(recording: Recording) -> None:
    assert recording.answer(dialect(recording), recording.results) == recording.data["answer"]


def test_cut_off_it_is_unreadable_or_read_as_far_as_it_goes(recording: Recording) -> None:
    """The reading has no other job, no other state of a job, and no more processors than the whole answer."""
    spoken, results = dialect(recording), recording.results
    for place, result in enumerate(results):
        for end in cuts(result.stdout):
            cut = result._replace(stdout=result.stdout[:end])
            answer = recording.answer(spoken, [*results[:place], cut, *results[place + 1 :]])
            message = f"cut after {end} of {len(result.stdout)} characters, the answer {place} is taken for {answer}"
            assert within(answer, recording.data["answer"]), message


def test_a_failure_without_words_is_an_error(recording: Recording) -> None:
    """The first command ends with any exit status, or does not end in time."""
    spoken, results = dialect(recording), recording.results
    for status in (None, 1, 127, 255):
        answer = recording.answer(spoken, [Result(results[0].argv, status, "", ""), *results[1:]])
        assert "value" not in answer or harmless(recording, answer), (status, answer)
        assert not broken(answer), (status, answer)


def test_nonsense_is_no_reading_and_no_traceback(recording: Recording) -> None:
    spoken = dialect(recording)
    for text in ("\0\n", "<!DOCTYPE x>\n", "{}\n", "no such thing\n", "\ufffd|||\n", "[" * 100_000 + "\n"):
        results = [result._replace(stdout=text) for result in recording.results]
        assert within(answer := recording.answer(spoken, results), recording.data["answer"]), (text, answer)


# ---- below -----------------------------------------------------------------------------------------------------------


def dialect(recording: Recording) -> Any:
    return import_module(registered("koalapy.batch_systems")[recording.data["batch"]].module)


def cuts(text: str) -> list[int]:
    """Positions at which to cut a text; never behind its last line's end, which would cut nothing."""
    ends = [at for at, character in enumerate(text) if character == "\n"]
    near = {at + beside for at in ends for beside in (-1, 0, 1, 3)}
    even = range(0, len(text), max(1, len(text) // CUTS))
    sensible = sorted(at for at in near if 0 <= at < len(text) - 1)
    return sorted({*sensible[:: max(1, len(sensible) // CUTS)], *even} - {len(text) - 1})


def within(answer: Json, whole: Json) -> bool:
    """Return whether the answer is an error with a reason, or claims nothing that the whole answer does not."""
    if "value" not in answer:
        return not broken(answer)
    return "value" in whole and _claims_no_more(answer["value"], whole["value"])


def broken(answer: Json) -> bool:
    """Return whether the dialect raised an unexpected error, or ran a command that was not recorded."""
    error = answer.get("error") or answer.get("doubt") or {}
    return error.get("code") == "dialect_broken"


def harmless(recording: Recording, answer: Json) -> bool:
    """Return whether the answer is of a look, check or cancel, and claims no more than the recorded one."""
    return recording.data["call"] in ("look", "check", "cancel") and within(answer, recording.data["answer"])


def _claims_no_more(value: Any, whole: Any) -> bool:
    if isinstance(value, dict) and isinstance(whole, dict) and "idle" in value:
        return _offers_no_more(value, whole)
    if isinstance(value, dict) and isinstance(whole, dict) and set(value) == {"listed", "accounted"}:
        return value["listed"] in (None, whole["listed"]) and value["accounted"] in (None, whole["accounted"])
    if isinstance(value, dict) and isinstance(whole, dict) and "version" not in value:
        return all(whole.get(name) == status for name, status in value.items())
    if isinstance(value, dict) and isinstance(whole, dict):
        return value["version"] == whole["version"] and set(value["features"]) <= set(whole["features"])
    if isinstance(value, list) and isinstance(whole, list):
        return set(value) <= set(whole)  # of a fingerprint
    return bool(value == whole)


def _offers_no_more(value: Json, whole: Json) -> bool:
    """Return whether a capacity offers no more.

    Jobs that are cut off count as others': their processors are taken either way.
    """
    fewer = all(value[name] <= whole[name] for name in ("total", "idle", "ours"))
    tags = all(set(value[name]) <= set(whole[name]) for name in ("allocated", "pending"))
    return fewer and tags and all(whole["statuses"].get(name) == each for name, each in value["statuses"].items())
