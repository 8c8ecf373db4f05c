"""The knowledge of which clusters suit jobs: the answers to comparisons of ads, each with its age."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from koalapy.broker.suitability import Ranks
from koalapy.information.ads import cluster_ad
from koalapy.information.kis import ClusterSummary, Known
from koalapy.model.errors import Reason
from koalapy.model.matching import Answer, ClusterAd, JobAd, Match, Question, Verdict, job_ad
from koalapy.model.request import ComponentRequest
from koalapy.model.textfile.classad import attributes_read
from koalapy.model.units import Duration, Instant

_COMPARING = Reason("comparing", "transient", "its ad is still being compared with the job's.", "Wait a moment.")


@dataclass(frozen=True, slots=True)
class _Compared:
    """The outcome for one cluster, and when it came."""

    match: Match
    at: Instant


class Matching:
    """The newest ads of clusters, and how the ads of waiting jobs compare with them.

    The ads are compared elsewhere: `questions` are asked, and `take` enters the answers. At most one set of questions
    is asked at a time. `version` grows with every change of what suits.
    """

    def __init__(self) -> None:
        self.version = 0
        self._ads: dict[str, ClusterAd] = {}
        self._seen: dict[str, tuple[Known, ClusterSummary]] = {}  # what each ad was made of
        self._max_age: dict[str, Duration] = {}
        self._compared: dict[JobAd, dict[str, _Compared]] = {}
        self._failures: dict[JobAd, tuple[Reason, Mapping[str, ClusterAd]]] = {}  # with the ads of that moment
        self._asked = False

    def look(self, clusters: Mapping[str, Known], summaries: Sequence[ClusterSummary]) -> None:
        """Make the ads of clusters that have changed."""
        for summary in summaries:
            known = clusters[summary.name]
            seen = self._seen.get(summary.name)
            if seen is not None and seen[0] is known and seen[1] is summary:
                continue
            self._seen[summary.name] = known, summary
            self._max_age[summary.name] = summary.settings.max_age
            ad = cluster_ad(known, summary)
            if self._ads.get(summary.name) != ad:
                self._ads[summary.name] = ad
        for name in [name for name in self._ads if name not in clusters]:
            del self._ads[name], self._seen[name], self._max_age[name]
            self.version += 1

    def questions(self, jobs: Iterable[JobAd]) -> tuple[Question, ...]:
        """Return what has to be compared for these ads of jobs; nothing while answers are awaited.

        All other ads of jobs are forgotten.
        """
        wanted = dict.fromkeys(jobs)
        for each in [each for each in self._compared if each not in wanted]:
            del self._compared[each]
        for each in [each for each in self._failures if each not in wanted]:
            del self._failures[each]
        if self._asked:
            return ()
        asked = []
        for job in wanted:
            if job in self._failures and (self.failure(job) is not None or self._failures[job][1] == self._ads):
                continue
            known = self._compared.get(job, {})
            ads = [ad for name, ad in self._ads.items() if name not in known or known[name].match.ad is not ad]
            if ads:
                asked.append(Question(job, tuple(ads)))
        self._asked = bool(asked)
        return tuple(asked)

    def take(self, now: Instant, answers: Iterable[Answer]) -> None:
        """Enter answers. An ad that could not be compared suits no cluster until it is."""
        self._asked = False
        for answer in answers:
            if answer.failure is not None:
                self._failures[answer.job] = answer.failure, dict(self._ads)
                self._compared.pop(answer.job, None)
                self.version += 1
                continue
            self._failures.pop(answer.job, None)
            compared = self._compared.setdefault(answer.job, {})
            for match in answer.matches:
                ad = self._ads.get(match.ad.cluster)
                if ad is None:
                    continue
                same = Match(ad, match.verdict, match.rank) if match.ad == ad else match
                before = self.compared(now, answer.job, ad.cluster)
                compared[ad.cluster] = _Compared(same, now)
                if not isinstance(before, Match) or (before.verdict, before.rank) != (match.verdict, match.rank):
                    self.version += 1

    def failure(self, job: JobAd) -> Reason | None:
        """Return why the ad of a job can never be compared; None otherwise."""
        found = self._failures.get(job)
        return found[0] if found is not None and found[0].whose == "request" else None

    def at(self, now: Instant) -> "MatchingAt":
        return MatchingAt(self, now)

    def compared(self, now: Instant, job: JobAd, cluster: str) -> Match | Reason:
        """Return how the ad of a job compares with that of a cluster, or why that is not known.

        An answer about a former ad counts until it is older than a measurement may be.
        """
        if job in self._failures:
            return self._failures[job][0]
        found, ad = self._compared.get(job, {}).get(cluster), self._ads.get(cluster)
        if found is None or ad is None:
            return _COMPARING
        if found.match.ad is not ad and now - found.at > self._max_age[cluster]:
            return _COMPARING
        return found.match

    @property
    def clusters(self) -> Sequence[str]:
        return list(self._ads)


class MatchingAt:
    """The knowledge of which clusters suit, at one instant (see koalapy.broker.suitability)."""

    def __init__(self, matching: Matching, now: Instant) -> None:
        self._matching, self._now = matching, now
        self._ranks: dict[JobAd, Ranks] = {}

    def ranks(self, component: ComponentRequest) -> Ranks | None:
        ad = job_ad(component)
        if ad is None:
            return None
        found = self._ranks.get(ad)
        if found is None:
            matches = [self._matching.compared(self._now, ad, cluster) for cluster in self._matching.clusters]
            suited = [each for each in matches if isinstance(each, Match) and each.verdict is Verdict.MATCH]
            suited.sort(key=lambda match: (match.rank is None, -(match.rank or 0.0)))
            found = self._ranks[ad] = {each.ad.cluster: each.rank for each in suited}
        return found

    def is_settled(self, component: ComponentRequest) -> bool:
        ad = job_ad(component)
        return ad is None or all(
            isinstance(self._matching.compared(self._now, ad, cluster), Match) for cluster in self._matching.clusters
        )

    def failure(self, component: ComponentRequest) -> Reason | None:
        ad = job_ad(component)
        return None if ad is None else self._matching.failure(ad)

    def why_not(self, component: ComponentRequest, cluster: str) -> Reason | None:
        ad = job_ad(component)
        if ad is None:
            return None
        found = self._matching.compared(self._now, ad, cluster)
        return found if isinstance(found, Reason) else mismatch(ad, found)


def mismatch(job: JobAd, match: Match) -> Reason | None:
    """Return the reason why a cluster does not suit, with the attribute that it lacks; None if it suits."""
    if match.verdict is Verdict.MATCH:
        return None
    if match.verdict is Verdict.NO_MATCH:
        return Reason(
            "no_match", "request", "its ad does not meet the requirements.", "`koala clusters --ads` shows it."
        )
    lacking = lacking_attributes(job, match.ad)
    names = " and ".join(lacking)
    if match.verdict is Verdict.UNDEFINED or lacking:
        what = f"it has no {names}" if lacking else "the requirements are undefined there"
        advice = "Set it under `attributes` of the cluster in the grid file." if lacking else ""
        return Reason("undefined", "request", f"{what}, so the requirements are not met.", advice)
    what = "the requirements have no truth value there: they divide by zero, or mix texts and numbers."
    return Reason("requirements_error", "request", what, "`koala clusters --ads` shows its attributes.")


def lacking_attributes(job: JobAd, ad: ClusterAd) -> list[str]:
    """Return the attributes that the requirements read, and that the ad lacks."""
    there = {name.casefold() for name, _ in ad.attributes}
    return [name for name in attributes_read(job.requirements) if name.casefold() not in there]
