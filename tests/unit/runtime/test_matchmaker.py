"""The helper process that evaluates expressions: it answers, it may die, and it is bounded in time and memory."""

import os
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from unittest.mock import patch

import pytest

from koalapy.common import extras
from koalapy.model.matching import ClusterAd, JobAd, Question, Verdict
from koalapy.model.textfile.classad import check_expression
from koalapy.runtime.matchmaking.helper import Helper

pytest.importorskip("classad2")

LINUX = ClusterAd("linux", (("OpSys", "Linux"), ("FreeCPUs", 3), ("RTE", ("MPI", "x")), ("Odd", 'a"b\\\n')))
BSD = ClusterAd("bsd", (("OpSys", "BSD"), ("FreeCPUs", 8)))


@pytest.fixture
def helper() -> Iterator[Helper]:
    made = Helper(question_s=0.5)
    yield made
    made.close()


def question(requirements: str, rank: str = "", *ads: ClusterAd, checked: bool = True) -> Question:
    wanted, ranked = (check_expression(text).text if text and checked else text for text in (requirements, rank))
    return Question(JobAd(wanted, ranked, 4, 8), ads or (LINUX, BSD))


def test_it_answers_questions_in_their_order(helper: Helper) -> None:
    found = helper.ask(
        [
            question("FreeCPUs >= MinNumCPU", "-FreeCPUs"),
            question('OpSys == "linux" && member("MPI", RTE)'),
            question("", "FreeCPUs * 1.5"),
            question('Odd == "a\\"b\\\\\\n"'),
            question("FreeCPUs / 0 > 1"),
            question("FreeCPUs"),
            question("true", "OpSys"),
        ]
    )
    verdicts = [[each.verdict for each in answer.matches] for answer in found]
    match, no, undefined, error = Verdict
    assert verdicts == [
        [no, match], [match, no], [match, match], [match, undefined], [error, error], [error, error], [match, match],
    ]  # fmt: skip
    assert [each.rank for each in found[0].matches] == [None, -8]
    assert [each.rank for each in found[2].matches] == [4.5, 12.0]
    assert [each.rank for each in found[6].matches] == [None, None]


def test_a_question_that_takes_too_long_is_the_jobs_mistake_and_harms_no_other(helper: Helper) -> None:
    slow = " || ".join(f'regexp("(a|aa)+(b|bb)*$", "{"a" * 60}{number}")' for number in range(100))
    assert len(slow) < 16_384
    ads = tuple(ClusterAd(f"c{number}", ()) for number in range(50))
    found = helper.ask([question('OpSys == "BSD"'), question(slow, "", *ads), question("FreeCPUs > 3")])
    assert [each.verdict for each in found[0].matches] == [Verdict.NO_MATCH, Verdict.MATCH]
    assert found[1].failure is not None
    assert (found[1].failure.code, found[1].failure.whose) == ("too_costly", "request")
    assert "0.5 s of processor time" in found[1].failure.message
    assert [each.verdict for each in found[2].matches] == [Verdict.NO_MATCH, Verdict.MATCH]


def test_a_question_that_crashes_the_process_is_the_jobs_mistake(helper: Helper) -> None:
    """No checked text does this; it is what 200,000 terms do to the library."""
    crash = question("+".join(["1"] * 2_000_000), checked=False)
    found = helper.ask([question("FreeCPUs > 3"), crash, question("FreeCPUs > 3")])
    assert found[1].failure is not None
    assert found[1].failure.code == "too_costly"
    assert found[0].matches == found[2].matches != ()


def test_memory_is_bounded(helper: Helper) -> None:
    grown = '[a="0123456789abcdef";' + "".join(
        f"{chr(97 + n + 1)}=strcat({chr(97 + n)},{chr(97 + n)},{chr(97 + n)},{chr(97 + n)});" for n in range(15)
    )
    crash = question(f"size({grown}].p) > 1", checked=False)
    found = helper.ask([crash, question("FreeCPUs > 3")])
    assert found[0].failure is not None or found[0].matches[0].verdict is Verdict.ERROR
    assert found[1].matches


def test_a_killed_process_is_replaced_and_the_question_answered(helper: Helper) -> None:
    helper.ask([question("FreeCPUs > 3")])
    process = helper._process
    assert process is not None
    os.kill(process.pid, 9)
    process.wait()
    assert helper.ask([question("FreeCPUs > 3")])[0].matches[1].verdict is Verdict.MATCH


def test_nothing_of_the_host_is_in_its_reach(helper: Helper) -> None:
    """A process without environment, that can open no file and start no other."""
    helper.ask([question("true")])
    assert helper._process is not None
    process = Path(f"/proc/{helper._process.pid}")
    lines = (process / "limits").read_text().splitlines()[1:]
    limits = {line[:26].strip(): line[26:].split()[0] for line in lines}
    assert (limits["Max open files"], limits["Max processes"], limits["Max file size"]) == ("3", "0", "0")
    assert (process / "environ").read_bytes() == b""


def test_without_the_library_one_sentence_names_what_to_install(helper: Helper) -> None:
    with patch.object(extras, "find_spec", lambda name: None):
        found = helper.ask([question("true"), question("true")])
    assert [each.failure.code for each in found if each.failure] == ["missing_extra"] * 2
    assert found[0].failure is not None
    assert found[0].failure.advice == "Install it: pip install 'koalapy[jdl]'."


ADVICE = "Install it: pip install --upgrade 'koalapy[jdl]'."


def test_with_an_old_library_one_sentence_names_what_to_install(helper: Helper) -> None:
    """Releases before this one do not bound the steps of an evaluation."""
    with patch.object(extras, "version", lambda name: "25.9.12"):
        (found,) = helper.ask([question("true")])
    assert found.failure is not None
    wanted = "Matchmaking needs htcondor 25.14 or later, for classad2: here is 25.9.12."
    assert (found.failure.code, found.failure.message, found.failure.advice) == ("old_extra", wanted, ADVICE)
    assert helper._process is None
    assert helper.ask([question("true")])[0].matches


def test_an_old_library_that_pip_does_not_know_reports_its_own_version(helper: Helper) -> None:
    def unknown(name: str) -> str:
        raise PackageNotFoundError(name)

    with patch.object(extras, "version", unknown), patch.dict(extras.OLDEST, classad2=("htcondor", (999, 1))):
        (found,) = helper.ask([question("true")])
    assert found.failure is not None
    assert found.failure.message.startswith("Matchmaking needs htcondor 999.1 or later, for classad2: here is 2")
    assert found.failure.advice == ADVICE
    assert helper._process is None


def test_whole_numbers_wrap_at_64_bits_and_reals_do_not(helper: Helper) -> None:
    many = "999999999999999999 * 10"  # almost 2 ** 63
    found = helper.ask(
        [
            question(f"FreeCPUs * {many} > 0", f"{many}"),
            question(f"FreeCPUs * 1.0 * {many} > 0", f"FreeCPUs * 1.0 * {many}"),
            question("FreeCPUs * 999999999999999999 > 0", "999999999999999999"),
        ]
    )
    match, no = Verdict.MATCH, Verdict.NO_MATCH
    assert [[each.verdict for each in answer.matches] for answer in found] == [[no, match], [match, match], [match] * 2]
    ranks = [[each.rank for each in answer.matches] for answer in found]
    assert ranks[0] == [None, 9999999999999999990 - 2**64]
    assert ranks[1] == [pytest.approx(3e19), pytest.approx(8e19)]
    assert ranks[2] == [10**18 - 1] * 2
