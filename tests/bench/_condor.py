"""HTCondor in a container of Debian trixie, for benches that set its DAGMan or its negotiator beside koalapy.

The container has Debian's package `htcondor` and the user `me`; `tests/bench/condor-container NAME` makes one.
"""

import json
import re
import subprocess
import time
from collections.abc import Iterable, Mapping


class Condor:
    """HTCondor's collector, negotiator and schedd, which run in the container of this name."""

    def __init__(self, container: str) -> None:
        self._container = container

    def graph(self, after: Mapping[int, Iterable[int]]) -> tuple[float, float]:
        """Run nodes that do nothing (NOOP), each after others. Returns the seconds by the clock, and those at work.

        Nothing is submitted for such a node: these are the times of DAGMan alone.
        """
        lines = [f"JOB j{node} one.sub NOOP" for node in after]
        lines += [
            f"PARENT {' '.join(f'j{each}' for each in others)} CHILD j{node}"
            for node, others in after.items()
            if others
        ]
        self._write("/home/me/big.dag", "\n".join(lines) + "\n")
        self._write("/home/me/one.sub", "executable = /bin/true\nlog = one.log\nqueue\n")
        self._run("su me -c 'cd && rm -f big.dag.metrics && condor_submit_dag -f big.dag'")
        while "gone" in self._run("test -s /home/me/big.dag.metrics || echo gone"):
            time.sleep(1)
        metrics = json.loads(self._run("cat /home/me/big.dag.metrics"))
        assert metrics["jobs_succeeded"] == len(after), metrics
        reported = self._run("tail -n 40 /home/me/big.dag.dagman.out")
        work = [float(re.findall(rf"{cycle}CycleTimeSum = ([\d.]+)", reported)[-1]) for cycle in ("Event", "Submit")]
        return metrics["duration"], sum(work)

    def negotiate(self, slots: Iterable[str], jobs: Iterable[tuple[str, str]]) -> float:
        """Return the negotiator's processor seconds to compare jobs, by (requirements, rank), with slots' ads once.

        No job may match: a slot that is matched is not compared with the jobs after it.
        """
        self._write("/tmp/slots", "\n\n".join(slots) + "\n")
        queued = [f"requirements = {wanted}\nrank = {rank}\nqueue" for wanted, rank in jobs]
        self._write("/tmp/jobs", "\n".join(["executable = /bin/true", "transfer_executable = false", *queued]) + "\n")
        self._run("condor_advertise -multiple -tcp UPDATE_STARTD_AD /tmp/slots")
        self._run("su me -c 'condor_submit /tmp/jobs'")
        try:
            for _ in range(60):
                self._run("condor_reschedule")
                time.sleep(1)
                ad = dict(re.findall(r"(\w+) = (\S+)", self._run("condor_status -negotiator -l")))
                if ad.get("LastNegotiationCycleNumJobsConsidered0") == str(len(queued)):
                    assert ad["LastNegotiationCycleMatches0"] == "0", ad
                    return float(ad["LastNegotiationCyclePhase4CpuTime0"])
        finally:
            self._run("condor_rm -all")
        raise TimeoutError("the negotiator has not considered all jobs within a minute")

    def _write(self, path: str, text: str) -> None:
        command = ["docker", "exec", "-i", self._container, "sh", "-c", f"cat > {path}; chmod 644 {path}"]
        subprocess.run(command, input=text, text=True, check=True)

    def _run(self, command: str) -> str:
        argv = ["docker", "exec", self._container, "sh", "-c", command]
        return subprocess.run(argv, text=True, check=True, capture_output=True).stdout
