"""Matchmaking: what a job requires of clusters, the attributes of a cluster, and the outcome of their comparison."""

from dataclasses import dataclass
from enum import StrEnum

from koalapy.model.cluster import Attributes
from koalapy.model.errors import Reason
from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.request import ComponentRequest

# Of each pair, one name stands for the other; the first is ours, that of the EU-DataGrid's first JDL, or HTCondor's.
ALIASES = (
    ("Name", "GlueCEUniqueID"),
    ("LRMSType", "GlueCEInfoLRMSType"),
    ("LRMSVersion", "GlueCEInfoLRMSVersion"),
    ("TotalCPUs", "GlueCEInfoTotalCPUs"),
    ("FreeCPUs", "GlueCEStateFreeCPUs"),
    ("WaitingJobs", "GlueCEStateWaitingJobs"),
    ("OpSys", "GlueHostOperatingSystemName"),
    ("OpSysRelease", "GlueHostOperatingSystemRelease"),
    ("Architecture", "GlueHostArchitecturePlatformType"),
    ("AverageSI", "GlueHostBenchmarkSI00"),
    ("AverageSF", "GlueHostBenchmarkSF00"),
    ("Memory", "GlueHostMainMemoryRAMSize"),
    ("MaxWallTime", "GlueCEPolicyMaxWallClockTime"),
    ("RunTimeEnvironment", "GlueHostApplicationSoftwareRunTimeEnvironment"),
)
OTHER_NAMES = {one.casefold(): other for pair in ALIASES for one, other in (pair, pair[::-1])}
_MEASURED = ("Name", "Network", "LRMSType", "LRMSVersion", "TotalCPUs", "FreeCPUs", "WaitingJobs")
# What no grid file may set, since koalapy measures it.
MEASURED = frozenset(name.casefold() for each in _MEASURED for name in (each, OTHER_NAMES.get(each.casefold(), each)))


class Verdict(StrEnum):
    """The value of a job's requirements for a cluster. Only the first one is a match."""

    MATCH = "match"
    NO_MATCH = "no_match"
    UNDEFINED = "undefined"  # an attribute that decides is not in the cluster's ad
    ERROR = "error"  # the value is none: a text was divided, for example, or the result is no truth value


@dataclass(frozen=True, slots=True)
class JobAd:
    """The part of a component's request that clusters are compared with.

    `requirements`, `rank`: checked expressions, each attribute with its scope; '' for none. `least`, `most`: of
    processors, which stay the same while the job asks for fewer.
    """

    requirements: str
    rank: str
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class ClusterAd:
    """The attributes of a cluster, by which it is compared."""

    cluster: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class Question:
    """A job's ad, and the clusters' ads that it is to be compared with."""

    job: JobAd
    clusters: tuple[ClusterAd, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """The outcome for one cluster. `rank`: None if the job has no rank, or if it is not a number there."""

    ad: ClusterAd
    verdict: Verdict
    rank: float | None = None


@fast_frozen
@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a question. `failure`: why there is none; a reason that is the request's own is lasting."""

    job: JobAd
    matches: tuple[Match, ...] = ()
    failure: Reason | None = None


def job_ad(component: ComponentRequest) -> JobAd | None:
    """Return the ad of a component that has requirements or a rank; None for any other."""
    if not component.requirements and not component.rank:
        return None
    least, most = component.least or component.processors, component.most or component.processors
    return JobAd(component.requirements, component.rank, least, most)
