"""PSI/J on a head node of the test grid: from the package index, in an environment of its own, brought by the engine.

Heads reach no package index, so what pip has installed here is copied there; it is pure Python but for psutil, whose
wheel fits every CPython 3.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from _heads import OURS, Head

from koalapy.testgrid import layout

PACKAGE = "psij-python==0.9.11"
_PLACE = "/opt/koala-bench"
_LEFT_OUT = ("pip", "pip-")
_PROGRAM = """
import os, sys, time
from datetime import timedelta
from psij import Job, JobAttributes, JobExecutor, JobSpec, ResourceSpecV1

def job():
    spec = JobSpec(executable="/bin/sleep", arguments=["600"], resources=ResourceSpecV1(process_count=1))
    spec.attributes = JobAttributes(duration=timedelta(minutes=10))
    return Job(spec)

executor = JobExecutor.get_instance("slurm")
jobs = [job() for _ in range(int(sys.argv[1]))]
began = time.time()
for each in jobs:
    executor.submit(each)
print(began, flush=True)
os._exit(0)
"""


_LOCAL = """
import os, sys, threading, time
from psij import Job, JobExecutor, JobSpec

slots, ended, over = threading.Semaphore(int(sys.argv[2])), [], threading.Event()
wanted = int(sys.argv[1])

def seen(job, status):
    if status.final:
        ended.append(status.exit_code)
        slots.release()
        if len(ended) == wanted:
            over.set()

executor = JobExecutor.get_instance("local")
executor.set_job_status_callback(seen)
began = time.time()
for _ in range(wanted):
    slots.acquire()
    executor.submit(Job(JobSpec(executable="/bin/true")))
over.wait()
print(time.time() - began if ended == [0] * wanted else -1, flush=True)
os._exit(0)
"""


@contextmanager
def installed(head: Head) -> Iterator[None]:
    """PSI/J stands on the head while this lasts."""
    container = head.containers.client.containers.get(layout.container_name(head.name))
    with tempfile.TemporaryDirectory(prefix="koala-psij-") as place:
        packed = _packed(Path(place))
    head.run(f"rm -rf {_PLACE}; mkdir -p {_PLACE}", "root")
    try:
        container.put_archive(_PLACE, packed)
        yield
    finally:
        head.run(f"rm -rf {_PLACE} /home/{OURS}/.psij", "root")


def submit(head: Head, jobs: int) -> float:
    """Submit so many jobs by its Slurm executor; when it began to, in seconds since 1970. Its start does not count."""
    return float(head.run(f"PYTHONPATH={_PLACE}/lib python3 {_PLACE}/submit.py {jobs}"))


def jobs_a_second(head: Head, jobs: int, at_once: int) -> float:
    """Jobs of /bin/true a second by its local executor, `at_once` at a time, each with its exit status.

    Its start does not count. Raises SystemExit if one failed.
    """
    took = float(head.run(f"PYTHONPATH={_PLACE}/lib python3 {_PLACE}/local.py {jobs} {at_once}"))
    if took <= 0:
        raise SystemExit("a job of PSI/J failed")
    return jobs / took


def _packed(place: Path) -> bytes:
    """An archive of the installed packages below `lib`, and of the programs."""
    venv.create(place, with_pip=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]
    subprocess.run(pip, check=True, stdout=sys.stderr)
    (packages,) = place.glob("lib/python3*/site-packages")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for each in sorted(packages.iterdir()):
            if not each.name.startswith(_LEFT_OUT):
                archive.add(each, f"lib/{each.name}")
        for name, program in (("submit.py", _PROGRAM.encode()), ("local.py", _LOCAL.encode())):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(program), 0o644
            archive.addfile(entry, io.BytesIO(program))
    return packed.getvalue()
