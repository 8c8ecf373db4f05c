"""Matches a second of the helper process, beside a plain loop over classad2 in this process, on the same ads.

    tests/bench/run matchmaking [--rounds N] [--negotiator CONTAINER]

1,000 JobAds, each with requirements and a rank of its own, are compared with the ads of 100 clusters. The helper is
asked as koalad asks it, and its answers become values of the engine. The plain loop checks, limits and answers nothing.
With `--negotiator`, HTCondor's own compares the same ads (tests/bench/condor-container makes the container). There each
job has one more condition behind the others, which no cluster meets, so that no slot is taken.
"""

import argparse
import re
import statistics
import sys
import time
from collections.abc import Sequence

import classad2
from _condor import Condor
from _grid import last_line

from koalapy.model.cluster import Value
from koalapy.model.matching import ClusterAd, JobAd, Question, Verdict
from koalapy.model.textfile.classad import check_expression, in_classad
from koalapy.runtime.matchmaking.helper import Helper

JOBS, CLUSTERS = 1_000, 100
BOUND = 0.5  # of the plain loop's matches a second
SYSTEMS = ("Linux", "Linux", "Linux", "BSD")


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests/bench/run matchmaking", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of both ways in turn (%(default)s)")
    parser.add_argument("--negotiator", metavar="CONTAINER", help="with HTCondor")
    arguments = parser.parse_args()
    rounds = arguments.rounds
    clusters = tuple(map(cluster, range(CLUSTERS)))
    jobs = [job(number) for number in range(JOBS)]
    questions = [Question(each, clusters) for each in jobs]
    helper = Helper(question_s=10.0)
    helper.ask(questions[:1])  # starts the process
    ours, plain, of_processor = [], [], []
    try:
        for _ in range(rounds):
            begun = time.perf_counter()
            answers = helper.ask(questions)
            ours.append(JOBS * CLUSTERS / (time.perf_counter() - begun))
            begun, busy = time.perf_counter(), time.process_time()
            matched = loop(jobs, clusters)
            plain.append(JOBS * CLUSTERS / (time.perf_counter() - begun))
            of_processor.append(JOBS * CLUSTERS / (time.process_time() - busy))
            found = [[each.verdict is Verdict.MATCH for each in answer.matches] for answer in answers]
            assert found == matched, "the two ways disagree"
    finally:
        helper.close()
    ratio = statistics.median(ours) / statistics.median(plain)
    print(f"the helper: {reported(ours)}; a plain loop over classad2: {reported(plain)}", file=sys.stderr)
    detail: dict[str, object] = {
        "matches_per_s": ours,
        "plain_matches_per_s": plain,
        "jobs": JOBS,
        "clusters": CLUSTERS,
    }
    if arguments.negotiator:
        asked = [(f"{scoped(each.requirements)} && TARGET.Never =?= true", scoped(each.rank)) for each in jobs]
        seconds = Condor(arguments.negotiator).negotiate(map(slot, clusters), asked)
        rates = f"{JOBS * CLUSTERS / seconds:,.0f}; the plain loop: {reported(of_processor)}"
        print(f"of processor time: HTCondor's negotiator {rates}", file=sys.stderr)
        detail["negotiator_per_s"] = JOBS * CLUSTERS / seconds
    else:
        print("HTCondor's negotiator is not compared: no --negotiator CONTAINER is given", file=sys.stderr)
    last_line("matchmaking", ratio, "of a plain loop", BOUND, ratio >= BOUND, detail)


def reported(rates: Sequence[float]) -> str:
    return f"{statistics.median(rates):,.0f} matches a second ({min(rates):,.0f} to {max(rates):,.0f})"


def cluster(number: int) -> ClusterAd:
    """A cluster whose ad is as long as a real one."""
    texts = {name: f"{name} {number}" for name in ("Name", "Network", "LRMSType", "LRMSVersion", "OpSysRelease")}
    numbers = {
        "TotalCPUs": 64 + number,
        "FreeCPUs": number % 48,
        "WaitingJobs": number % 7,
        "AverageSI": 1_000 + number,
    }
    runs = ("MPICH-G2", "OPENMPI") if number % 2 else ("OPENMPI",)
    system = SYSTEMS[number % len(SYSTEMS)]
    glue = {f"GlueCEState{name}": value for name, value in numbers.items()}
    attributes = {**texts, **numbers, **glue, "OpSys": system, "RunTimeEnvironment": runs}
    return ClusterAd(f"cluster{number}", tuple(attributes.items()))


def slot(found: ClusterAd) -> str:
    """Return the ad of a cluster in the form of an idle slot of HTCondor."""
    own: dict[str, Value] = {
        "MyType": "Machine", "Machine": found.cluster, "Name": found.cluster, "MyAddress": "<127.0.0.1:9>",
        "State": "Unclaimed", "Activity": "Idle", "Arch": "X86_64", "Cpus": 1, "Memory": 1000, "Disk": 1_000_000,
    }  # fmt: skip
    lines = in_classad((dict(found.attributes) | own).items())[1:-1].split(";")
    return "\n".join([*lines, "Requirements=true", "START=true"])


def scoped(expression: str) -> str:
    return re.sub(r"\bother\.", "TARGET.", expression)


def job(number: int) -> JobAd:
    wanted = f'OpSys == "Linux" && FreeCPUs >= {number % 40} && member("MPICH-G2", RunTimeEnvironment)'
    rank = f"AverageSI - {number} * WaitingJobs"
    return JobAd(check_expression(wanted).text, check_expression(rank).text, number + 1, number + 1)


def loop(jobs: Sequence[JobAd], clusters: Sequence[ClusterAd]) -> list[list[bool]]:
    """Compare in the shortest way that classad2 has: requirements for all clusters, the rank where they are met."""
    ads = [classad2.ClassAd(in_classad(each.attributes)) for each in clusters]
    found = []
    for each in jobs:
        own = classad2.ClassAd(f"[MinNumCPU={each.least}]")
        wanted, rank = classad2.ExprTree(each.requirements), classad2.ExprTree(each.rank)
        met = [wanted.eval(own, ad) is True for ad in ads]
        [rank.eval(own, ad) for ad, is_met in zip(ads, met, strict=True) if is_met]
        found.append(met)
    return found


if __name__ == "__main__":
    main()
