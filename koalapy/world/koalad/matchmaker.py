"""The matchmaker of the simulated world: it knows the few expressions that jobs there have, and no library."""

from collections.abc import Callable, Mapping

from koalapy.driver.driver import Delivery
from koalapy.model.cluster import Value
from koalapy.model.commands import CompareAds
from koalapy.model.events import AdsCompared
from koalapy.model.matching import Answer, ClusterAd, JobAd, Match, Question, Verdict

Ad = Mapping[str, Value]

NOT_BETA = 'other.Name != "beta"'  # what no measurement changes
_WORTH = {"alpha": 3.0, "beta": 1.0, "gamma": 2.0}  # of the others 0
REQUIREMENTS: Mapping[str, Callable[[Ad], bool | None]] = {
    "": lambda ad: True,
    "other.TotalCPUs >= 4": lambda ad: _at_least(ad, "TotalCPUs", 4),
    "other.WaitingJobs < 5": lambda ad: None if "WaitingJobs" not in ad else not _at_least(ad, "WaitingJobs", 5),
    NOT_BETA: lambda ad: ad["Name"] != "beta",
}
RANKS: Mapping[str, Callable[[Ad], float | None]] = {
    "": lambda ad: None,
    "other.FreeCPUs": lambda ad: _number(ad.get("FreeCPUs")),
    'other.Name == "alpha" ? 3 : other.Name == "gamma" ? 2 : 1': lambda ad: _WORTH.get(str(ad["Name"]), 1.0),
}


def compared(hint: CompareAds) -> Delivery:
    """Return the answer to the questions, as koalad's matchmaker delivers it."""
    return Delivery(events=(AdsCompared(tuple(map(_answer, hint.questions))),))


def _answer(question: Question) -> Answer:
    return Answer(question.job, tuple([_match(question.job, ad) for ad in question.clusters]))


def _match(job: JobAd, ad: ClusterAd) -> Match:
    attributes = dict(ad.attributes)
    met = REQUIREMENTS[job.requirements](attributes)
    if met is None:
        return Match(ad, Verdict.UNDEFINED)
    return Match(ad, Verdict.MATCH, RANKS[job.rank](attributes)) if met else Match(ad, Verdict.NO_MATCH)


def _at_least(ad: Ad, name: str, number: int) -> bool | None:
    found = _number(ad.get(name))
    return None if found is None else found >= number


def _number(value: Value | None) -> float | None:
    return float(value) if isinstance(value, int | float) else None
