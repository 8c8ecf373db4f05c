"""What is said of a clock that is so far from another."""

from koalapy.doctor.check_result import Doubtful, Found, Trouble
from koalapy.model.errors import Reason

_NOTED_S, _BAD_S = 5.0, 60.0


def judged(whose: str, skew_s: float, than: str, bound: bool = False) -> Found:
    """`bound`: the clocks are at least so far apart."""
    apart = abs(skew_s)
    at_least = "at least " if bound else ""
    said = f"{whose} is {at_least}{apart:.1f} s {'ahead of' if skew_s > 0 else 'behind'} {than}."
    if apart >= _BAD_S:
        advice = "Ask the administrator to have it set by NTP: batch systems refuse what comes from another time."
        raise Trouble(Reason("clock_skew", "cluster", said, advice))
    if apart >= _NOTED_S:
        raise Doubtful(f"{said} koalapy maps all times, but file times and credentials may suffer.")
    return (f"{whose} agrees with {than}." if apart < 1 else said), {"ahead_s": round(skew_s, 3)}
