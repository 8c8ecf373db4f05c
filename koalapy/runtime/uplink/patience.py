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
_NONSENSE = ("garbled", "link_failed", "quarantined", "impossible_number")  # a cluster that must not be believed
_MOST_REFUSALS = 3  # in a row: sites lock accounts
_LONGER = 5  # times, the wait after each further refusal
_SHARE = 8  # of the time that it has been failing for, to wait before the next try


def is_nonsense(reason: Reason) -> bool:
    """Whether a session ended because of what the cluster said."""
    return reason.code in _NONSENSE


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
    and one that asks for an answer not at all: then only a person can start the next try (`renew`). A cluster that
    talks nonsense is connected again after a wait that doubles each time to `retry_site`, however long it was sane.
    """

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._refusals = 0
        self._nonsense = 0  # sessions that ended for it, less those that did not

    def renew(self) -> None:
        """A login worked, or a person has asked for another try."""
        self._refusals = 0

    def told(self, reason: Reason) -> Reason:
        """The reason, and what to do where koalad does nothing more by itself. Once a failure."""
        self._nonsense = max(0, self._nonsense + (1 if is_nonsense(reason) else -1))
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
        if is_nonsense(lost.reason):
            most = min(self._timing.retry_first * 2.0 ** min(self._nonsense, 30), self._timing.retry_site)
            return most * random.uniform(0.75, 1.0)
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
