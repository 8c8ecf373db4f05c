"""Compares ads for the engine and for API calls, in a helper process that evaluates expressions.

This is koalad's side: it starts the process, asks it, and replaces one that died.
"""

import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from koalapy.common.extras import need_extra, need_release
from koalapy.driver.driver import Delivery
from koalapy.model.commands import CompareAds
from koalapy.model.errors import KoalaError, OurError, Reason
from koalapy.model.events import AdsCompared
from koalapy.model.matching import Answer, ClusterAd, JobAd, Match, Question, Verdict
from koalapy.model.textfile.classad import in_classad

QUESTION_S = 1.0  # processor time for one job's expressions on all clusters
START_S = 30.0
SILENCE_S = 10.0  # without a line, after which the process counts as hung
_LONGEST_LINE = 1 << 22
_PROGRAM = Path(__file__).with_name("evaluator.py")
_VERDICTS = {"m": Verdict.MATCH, "n": Verdict.NO_MATCH, "u": Verdict.UNDEFINED, "e": Verdict.ERROR}
_SIMPLIFY = "Write simpler requirements, or a simpler rank, and submit it again."
_LOG = structlog.get_logger()
_FAILED = "Report this, with koalad's log."


class HelperDied(Exception):
    """The process ended, or was killed since it hung. `signal`: the one that ended it, 0 if none did."""

    def __init__(self, number: int, hung: bool = False) -> None:
        super().__init__(number)
        self.signal, self.hung = number, hung


class Helper:
    """The helper process, started at the first question. Only one thread at a time may call it."""

    def __init__(self, question_s: float = QUESTION_S, silence_s: float = SILENCE_S) -> None:
        self._question_s, self._silence_s = question_s, silence_s
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Return an answer to each question, in their order; one that cannot be answered has a `failure`.

        A question that takes too long, or ends the process twice, is the job's own mistake.
        """
        answers: list[Answer] = []
        again = False  # whether the first question left has ended a process
        while len(answers) < len(questions):
            left = questions[len(answers) :]
            before = len(answers)
            try:
                for question, line in zip(left, self._lines(left), strict=True):
                    answers.append(_read(question, line))
            except HelperDied as death:
                self.close()
                again = again and len(answers) == before
                if again or death.hung or death.signal == signal.SIGVTALRM:
                    answers.append(
                        Answer(left[len(answers) - before].job, failure=_too_costly(death, self._question_s))
                    )
                    again = False
                else:
                    again = True
            except KoalaError as error:
                return [*answers, *(Answer(each.job, failure=error.reason) for each in questions[len(answers) :])]
        return answers

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process, self._unread = self._process, None, b""
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()

    def _lines(self, questions: Sequence[Question]) -> Iterator[dict[str, Any]]:
        """Yield the process's answers. Raises HelperDied, and KoalaError if there is no process."""
        process = self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(_request(questions, self._question_s))
            process.stdin.flush()
        except BrokenPipeError:
            raise HelperDied(self._signal(process)) from None
        for _ in questions:
            yield self._line(process, self._silence_s)

    def _started(self) -> subprocess.Popen[bytes]:
        """Return the process. Raises KoalaError without the library, or if the process does not start."""
        if self._process is not None:
            return self._process
        need_extra("jdl", "Matchmaking")
        argv = [sys.executable, "-I", str(_PROGRAM)]
        process = self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}, cwd="/"
        )
        try:
            ready = self._line(process, START_S)
            need_release("classad2", str(ready["ready"]), "jdl", "Matchmaking")
        except KoalaError:
            self.close()
            raise
        except HelperDied as death:
            self.close()
            message = f"The helper that compares jobs with clusters does not start (signal {death.signal})."
            advice = "Run `python -c 'import classad2'` with koalad's Python, and repair what fails."
            raise OurError("no_matchmaker", message, advice) from death
        return process

    def _line(self, process: subprocess.Popen[bytes], patience_s: float) -> dict[str, Any]:
        assert process.stdout is not None
        until = time.monotonic() + patience_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                ready = selector.select(max(0.0, until - time.monotonic()))
                more = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
                if not ready or len(self._unread) > _LONGEST_LINE:
                    raise HelperDied(0, hung=True)
                if not more:
                    raise HelperDied(self._signal(process))
                self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def _signal(self, process: subprocess.Popen[bytes]) -> int:
        """Return the signal that ended the process, which has closed its end of a pipe."""
        try:
            return max(0, -process.wait(self._silence_s))
        except subprocess.TimeoutExpired:
            return 0


def _request(questions: Sequence[Question], seconds: float) -> bytes:
    places: dict[ClusterAd, int] = {}
    asked = [
        [
            each.job.requirements,
            each.job.rank,
            _own(each.job),
            [places.setdefault(ad, len(places)) for ad in each.clusters],
        ]
        for each in questions
    ]
    texts = [in_classad(ad.attributes) for ad in places]
    return json.dumps({"ads": texts, "questions": asked, "seconds": seconds}).encode() + b"\n"


def _own(job: JobAd) -> str:
    return f"[MinNumCPU={job.least};MaxNumCPU={job.most};NodeNumber={job.least}]"


def _read(question: Question, line: dict[str, Any]) -> Answer:
    if "failed" in line:
        message = f"Its requirements or its rank cannot be evaluated: {line['failed']}"
        return Answer(question.job, failure=Reason("not_evaluated", "request", message, _SIMPLIFY))
    found = zip(question.clusters, line["verdicts"], line["ranks"], strict=True)
    return Answer(question.job, tuple([Match(ad, _VERDICTS[verdict], rank) for ad, verdict, rank in found]))


def _too_costly(death: HelperDied, question_s: float) -> Reason:
    why = f"ended the process that evaluates them ({_signal_name(death.signal)})"
    if death.hung or death.signal == signal.SIGVTALRM:
        why = f"take more than {question_s:g} s of processor time"
    return Reason("too_costly", "request", f"Its requirements or its rank {why}.", _SIMPLIFY)


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in {*signal.Signals} else "without a signal"


class Matchmaker:
    """The one user of the helper process. `deliver`: takes the engine's events; see DriverThread.deliver."""

    def __init__(self, helper: Helper | None = None) -> None:
        self._helper = helper or Helper()
        self._lock = threading.Lock()  # of the helper process
        self._asked: queue.SimpleQueue[CompareAds | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, deliver: Callable[[Delivery], None]) -> None:
        """Begin to answer the engine. Its questions until now are answered too."""
        self._thread = threading.Thread(target=self._run, args=(deliver,), name="matchmaker", daemon=True)
        self._thread.start()

    def compare_soon(self, hint: CompareAds) -> None:
        """Answer the engine's questions by an event. Returns at once."""
        self._asked.put(hint)

    def compare(self, questions: Sequence[Question]) -> list[Answer]:
        """Return an answer to each question, after those that are being answered. No error is raised."""
        with self._lock:
            try:
                return self._helper.ask(questions)
            except Exception as error:
                _LOG.exception("matchmaker_failed")
                self._helper.close()
                message = f"The ads could not be compared ({type(error).__name__}: {str(error)[:200]})."
                reason = Reason("matchmaker_failed", "ours", message, _FAILED)
                return [Answer(each.job, failure=reason) for each in questions]

    def close(self) -> None:
        """End the helper process; nothing is answered any more."""
        self._asked.put(None)
        if self._thread is not None:
            self._thread.join(timeout=5)
        with self._lock:
            self._helper.close()

    def _run(self, deliver: Callable[[Delivery], None]) -> None:
        while (hint := self._asked.get()) is not None:
            deliver(Delivery(events=(AdsCompared(tuple(self.compare(hint.questions))),)))
