"""The judgement of the difference between two clocks."""

from koalapy.doctor.check_result import Doubtful, Found, Trouble
from koalapy.model.errors import Reason

_NOTED_S, _BAD_S = 5.0, 60.0


def judged(whose: str, skew_s: float, than: str, bound: bool = False) -> Found:
    """Return a message on a clock and its skew.

    `whose` and `than` name the clocks; `skew_s`: seconds that the first is ahead. `bound`: the clocks differ by at
    least `skew_s`. Raises Trouble if they differ by 60 s or more, and Doubtful if by 5 s or more.
    """
    apart = abs(skew_s)
    at_least = "at least " if bound else ""
    said = f"{whose} is {at_least}{apart:.1f} s {'ahead of' if skew_s > 0 else 'behind'} {than}."
    if apart >= _BAD_S:
        advice = "Ask the administrator to have it set by NTP: batch systems refuse what comes from another time."
        raise Trouble(Reason("clock_skew", "cluster", said, advice))
    if apart >= _NOTED_S:
        raise Doubtful(f"{said} koalapy maps all times, but file times and credentials may suffer.")
    return (f"{whose} agrees with {than}." if apart < 1 else said), {"ahead_s": round(skew_s, 3)}
