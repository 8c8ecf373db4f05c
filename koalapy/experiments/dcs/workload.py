"""The batch: four components of equal size that run the Poisson program, whose time depends on where they lie.

The paper has no model of its program, but these figures of it (seconds), from which this one is made:

- Mean run times by system and size: 79.4 on 144+3x64 (figure 2); on 144+64 94.1 for components of 8 (the mean of 102.1,
  87.8 and 92.4: figure 3, top, and figure 4) and 76.8 for components of 4 (figure 3, bottom). They are taken for those
  of a job on as many clusters as these very experiments give it here on the average: 2.4, 1.85 and 1.6, since Worst-Fit
  puts several components on the large cluster once the others are full. All of DAS-2 is as 144+3x64.
- 1.25, the slowdown by wide-area communication up to which co-allocation pays (section 5), is that of a job on four
  clusters; each cluster beyond the first is a third of it. Strips of a cluster are adjacent (section 4.2), so that so
  many of their borders are wide-area ones.
- 10.0 of 87.8 is how much jobs differ from each other (figure 4, top): there all lie alike.
"""

from collections.abc import Sequence
from random import Random

from koalapy.experiments.dcs.paper import COMPONENTS, SYSTEMS, Case
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.units import MINUTE, SECOND, Duration
from koalapy.world.behaviour import EXECUTABLE, Behaviour, arguments_of
from koalapy.world.random_streams import stream

WIDE = 0.25 / 3  # of the time on one cluster, for each cluster beyond
VARIATION = 10.0 / 87.8
_RUNS = {  # seconds on the average, and on how many clusters
    ("144+64", 8): (94.1, 1.85),
    ("144+64", 4): (76.8, 1.6),
    ("144+3x64", 8): (79.4, 2.4),
    ("144+4x64", 8): (79.4, 2.4),
}
_LEAST, _MOST = 0.6, 1.4  # of the mean
_WALLTIME = Duration(10 * MINUTE)


def batch(case: Case, seed: int, jobs: int) -> list[Request]:
    """All are submitted at once. Times and places follow from the seed alone: they are alike under all policies."""
    return [_job(case, number, stream(seed, f"dcs/{number}")) for number in range(jobs)]


def runs(case: Case) -> float:
    """Seconds that a job takes on one cluster, on average."""
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
    """Ordered jobs name four clusters of five, all of four, and each of two for two components (section 4.4)."""
    names = rng.sample(list(SYSTEMS[case.system]), min(COMPONENTS, len(SYSTEMS[case.system])))
    ordered = case.kind == "ordered" or (case.kind == "mixed" and number % 2 == 0)
    return [names[index % len(names)] if ordered else None for index in range(COMPONENTS)]
