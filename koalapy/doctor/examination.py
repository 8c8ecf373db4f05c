"""The examination of one cluster, check by check, with the checks that could not be examined because of another."""

import threading
import time
from collections.abc import Callable, Sequence

from koalapy.doctor.checks import (
    BY_ID,
    CHECKS,
    FINE,
    TITLES,
    Check,
    Doubtful,
    Figures,
    Finding,
    Inapplicable,
    Report,
    Status,
    Trouble,
    Undecided,
)
from koalapy.doctor.error_advice import failure
from koalapy.doctor.examiner import ExaminedCluster, Examiner
from koalapy.doctor.kcm_session import Interrupted
from koalapy.model.errors import KoalaError, Reason

Began = Callable[[str, str], None]  # cluster, check
Ended = Callable[[str, Finding], None]


class Examination:
    """The examination of one cluster. `run` blocks, and leaves nothing on the cluster, even after an interrupt."""

    def __init__(self, cluster: ExaminedCluster, began: Began, ended: Ended, checks: Sequence[Check] = CHECKS) -> None:
        self._cluster, self._began, self._ended, self._checks = cluster, began, ended, checks
        self._findings: dict[str, Finding] = {}
        self._stop = threading.Event()
        self._examiner = Examiner(cluster, self._stop)

    def run(self) -> Report:
        left: list[str] = []
        try:
            for check in self._checks:
                self._perform(check)
        except Interrupted:
            pass
        finally:
            if self._examiner.session is not None:
                left = self._examiner.session.end()
        return Report(self._cluster.name, tuple(self._findings.values()), tuple(left))

    @property
    def may_leave_something(self) -> bool:
        """Return whether the KCM was started, so that something may be left there.

        False stays False after an interrupt.

        Any thread may ask.
        """
        return self._examiner.session is not None

    def unended(self) -> Report:
        """Return a report of an examination that has not ended: its findings so far, and what it may leave.

        Any thread may call it.
        """
        left = "perhaps a batch job and a directory of this examination, whose end took too long"
        return Report(self._cluster.name, tuple(self._findings.values()), (left,))

    def interrupt(self) -> None:
        """End the examination soon. Returns at once; any thread may call it."""
        self._stop.set()
        if (session := self._examiner.session) is not None:
            session.interrupt()

    # ---- one check

    def _perform(self, check: Check) -> None:
        if self._stop.is_set():
            raise Interrupted
        self._began(self._cluster.name, check.id)
        started = time.monotonic()
        status, message, figures, reason, value = self._outcome(check)
        wrong = failure(self._cluster.name, reason, value) if reason is not None else None
        took = time.monotonic() - started
        finding = Finding(check.id, status, message, took, figures, wrong)
        self._findings[check.id] = finding
        self._ended(self._cluster.name, finding)

    def _outcome(self, check: Check) -> tuple[Status, str, Figures, Reason | None, str]:
        if (why := self._hindrance(check)) is not None:
            return Status.NOT_EXAMINED, why, {}, None, ""
        try:
            message, figures = self._examiner.perform(check.id)
            return Status.OK, message, figures, None, ""
        except Inapplicable as why_not:
            return Status.NOT_APPLICABLE, str(why_not), {}, None, ""
        except Undecided as waiting:
            return Status.NOT_EXAMINED, str(waiting), {}, None, ""
        except Doubtful as doubt:
            return Status.WARNING, str(doubt), {}, None, ""
        except Trouble as trouble:
            return Status.FAILED, trouble.reason.message, {}, trouble.reason, trouble.value
        except KoalaError as error:
            return Status.FAILED, error.reason.message, {}, error.reason, ""
        except Interrupted:
            raise
        except Exception as error:  # the other checks and the clean-up have to continue
            reason = _broken(error)
            return Status.FAILED, reason.message, {}, reason, ""

    def _hindrance(self, check: Check) -> str | None:
        """Return why the check cannot be examined: the failed check that it depends on, or no KCM.

        None if it can be.
        """
        if (before := self._first_hindrance(check)) is not None:
            return f"It depends on “{TITLES[before]}”."
        if check.agent and self._examiner.session is None:
            return "No agent could be started on the head node."
        return None

    def _first_hindrance(self, check: Check) -> str | None:
        """Return the id of the failed check from which the dependencies start; None if all of them are fine."""
        for before in check.after:
            if self._findings[before].status not in FINE:
                return self._first_hindrance(BY_ID[before]) or before
        return None


def _broken(error: Exception) -> Reason:
    message = f"The examination itself broke: {type(error).__name__}: {error}."
    return Reason("doctor_broken", "ours", message, "Report it to koalapy's authors.")
