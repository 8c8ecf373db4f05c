"""The DCS paper's systems and measurements (sections 4.1, 4.3 and 4.4), and a batch that is modelled on them.

Its jobs have four equal components that run the Poisson program, whose run time depends on their clusters. The paper
has no model of its program. The model here is made from these figures of the paper, in seconds:

- Mean run times by system and size: 79.4 on 144+3x64 (figure 2); on 144+64, 94.1 for components of 8 and 76.8 for
  components of 4 (figure 3, bottom). The 94.1 is the mean of 102.1, 87.8 and 92.4 (figure 3, top, and figure 4). Each
  is taken for a job on the average number of clusters that these experiments give it here: 2.4, 1.85 and 1.6. It is
  less than four, since Worst-Fit puts several components on the large cluster once the others are full. All of DAS-2
  has the run time of 144+3x64.
- 1.25 is the slowdown by wide-area communication up to which co-allocation pays (section 5). It is taken for a job on
  four clusters; each cluster beyond the first adds a third of the slowdown. Strips of a cluster are adjacent (section
  4.2), so that the number of wide-area borders grows with the clusters.
- 10.0 of 87.8 is the standard deviation among jobs whose components are all placed alike (figure 4, top).
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from koalapy.model.request import ComponentRequest, Request
from koalapy.model.units import MINUTE, SECOND, Duration
from koalapy.world.behaviour import EXECUTABLE, Behaviour, arguments_of
from koalapy.world.random_streams import stream

JOBS, COMPONENTS = 40, 4
PROCESSORS_PER_NODE = 2

SYSTEMS = {  # nodes; the paper counts processors
    "144+64": {"vu": 72, "delft": 32},
    "144+3x64": {"vu": 72, "delft": 32, "leiden": 32, "uva": 32},
    "144+4x64": {"vu": 72, "delft": 32, "leiden": 32, "uva": 32, "utrecht": 32},
}
WHOLE = "144+4x64"  # all of DAS-2, which the paper's own experiments did not have


class Case(NamedTuple):
    """One batch: jobs of `kind` whose components have `size` processors each."""

    system: str
    size: int
    kind: str
    queue: str
    placement: str


class Measured(NamedTuple):
    """Seconds, as average and standard deviation, as given under a figure of the paper."""

    figure: str
    response: tuple[float, float]
    run: tuple[float, float]
    overhead: tuple[float, float]


MEASURED = {
    Case("144+3x64", 8, "unordered", "fcfs", "worst-fit"): Measured(
        "figure 2", (377.2, 177.2), (79.4, 29.8), (32.9, 17.8)
    ),
    Case("144+64", 8, "unordered", "fcfs", "worst-fit"): Measured(
        "figure 3, top", (581.3, 295.2), (102.1, 12.5), (25.4, 3.5)
    ),
    Case("144+64", 4, "unordered", "fcfs", "worst-fit"): Measured(
        "figure 3, bottom", (267.2, 108.2), (76.8, 17.0), (26.9, 3.2)
    ),
    Case("144+64", 8, "ordered", "fcfs", "worst-fit"): Measured(
        "figure 4, top", (1135.2, 611.1), (87.8, 10.0), (21.9, 3.4)
    ),
    Case("144+64", 8, "mixed", "fpfs", "worst-fit"): Measured(
        "figure 4, bottom", (634.7, 335.3), (92.4, 15.6), (25.3, 6.5)
    ),
}


WIDE = 0.25 / 3  # part of the time on one cluster, for each further cluster
VARIATION = 10.0 / 87.8
_RUNS = {  # average seconds, and average number of clusters
    ("144+64", 8): (94.1, 1.85),
    ("144+64", 4): (76.8, 1.6),
    ("144+3x64", 8): (79.4, 2.4),
    ("144+4x64", 8): (79.4, 2.4),
}
_LEAST, _MOST = 0.6, 1.4  # of the mean
_WALLTIME = Duration(10 * MINUTE)


def batch(case: Case, seed: int, jobs: int) -> list[Request]:
    """Return the jobs, which are submitted at once.

    Run times and named clusters follow from the seed alone, and are the same under all policies.
    """
    return [_job(case, number, stream(seed, f"dcs/{number}")) for number in range(jobs)]


def runs(case: Case) -> float:
    """Return the average seconds that a job takes on one cluster."""
    mean, clusters = _RUNS[case.system, case.size]
    return mean / (1 + WIDE * (clusters - 1))


def _job(case: Case, number: int, rng: Random) -> Request:
    factor = min(_MOST, max(_LEAST, rng.gauss(1.0, VARIATION)))
    seconds = factor * runs(case)
    behaviour = Behaviour(runs=Duration(round(seconds * SECOND)), wide=Duration(round(WIDE * seconds * SECOND)))
    components = tuple(
        ComponentRequest(
            processors=case.size,
            executable=EXECUTABLE,
            arguments=arguments_of(behaviour),
            cluster=cluster,
            walltime=_WALLTIME,
        )
        for cluster in _clusters(case, number, rng)
    )
    return Request(name=f"dcs-{number}", components=components, stage_in=("poisson",))


def _clusters(case: Case, number: int, rng: Random) -> Sequence[str | None]:
    """Return the cluster that each component names, or None (section 4.4).

    Ordered jobs name four of five clusters, or all of four; of two clusters, they name each for two components.
    """
    names = rng.sample(list(SYSTEMS[case.system]), min(COMPONENTS, len(SYSTEMS[case.system])))
    ordered = case.kind == "ordered" or (case.kind == "mixed" and number % 2 == 0)
    return [names[index % len(names)] if ordered else None for index in range(COMPONENTS)]
