"""How long a link waits before it connects again: by why it could not, for how long, and whether a person helps."""

import math
import random
from dataclasses import replace

import tenacity

from koalapy.link.cluster import Timing
from koalapy.model.errors import Reason

FOR_A_PERSON = math.inf
_ANSWERS = ("asks", "answer_refused")  # nothing but a person mends these
_REFUSAL = "authentication"
_MOST_REFUSALS = 3  # in a row: sites lock accounts
_LONGER = 5  # times, the wait after each further refusal
_SHARE = 8  # of the time that it has been failing for, to wait before the next try


class Lost(Exception):
    """A connection that could not be made, or did not last."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Patience(tenacity.wait.wait_base):
    """How long a link waits after each `Lost`, by its reason. One for the link's life.

    A head node that is out of reach is tried again after an eighth of the time that it has been so, so that what is
    down for seconds is back within seconds, and what is down for hours is not bothered: from `retry_soon` on, to
    `retry_max`. What a site has to mend waits for `retry_site`. A login that is refused is tried three times in all,
    and one that asks for an answer not at all: then only a person can start the next try (`renew`).
    """

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._refusals = 0

    def renew(self) -> None:
        """A login worked, or a person has asked for another try."""
        self._refusals = 0

    def told(self, reason: Reason) -> Reason:
        """The reason, and what to do where koalad does nothing more by itself. Once a failure."""
        if reason.code != _REFUSAL:
            return reason
        self._refusals += 1
        if self._refusals < _MOST_REFUSALS:
            return reason
        stopped = f"After {self._refusals} refusals koalad does not try again, since a site may lock the account:"
        return replace(reason, advice=f"{reason.advice} {stopped} `koala login` or `koala up` does.")

    def __call__(self, retry_state: tenacity.RetryCallState) -> float:
        lost = retry_state.outcome.exception() if retry_state.outcome else None
        assert isinstance(lost, Lost)
        doubled = self._timing.retry_first * 2.0 ** min(retry_state.attempt_number - 1, 30)
        most = self.most(lost.reason, retry_state.seconds_since_start or 0.0)
        return most if most == FOR_A_PERSON else min(doubled, most) * random.uniform(0.75, 1.0)

    def most(self, reason: Reason, failing_s: float) -> float:
        """The longest wait after this failure; `failing_s`: since the first one."""
        timing = self._timing
        if reason.code in _ANSWERS or self._refusals >= _MOST_REFUSALS:
            return FOR_A_PERSON
        if reason.code == _REFUSAL:
            return timing.retry_site * float(_LONGER ** (self._refusals - 1))
        if reason.whose == "site":
            return timing.retry_site
        return min(timing.retry_max, max(timing.retry_soon, failing_s / _SHARE))
