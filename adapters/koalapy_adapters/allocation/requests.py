"""The requests to a queue, and their answers, as JSON documents."""

import json
from typing import Any, Callable, Dict, List, Tuple

from koalapy_adapters.allocation import jobs, script
from koalapy_adapters.allocation.outer_job import Outer
from koalapy_adapters.errors import BatchError, ClusterError, RequestError
from koalapy_adapters.host import node_identity

VERSION = "1"
DAMAGED = "the files of the queue were damaged, and nothing shows whether this job ran"
_MOST_INLINE = 100000  # characters of a script that the shell gets as an argument; a longer file is read at the start
SHOWN_S = 5.0  # for which `capacity` lists a job that has ended; `status` does so longer

Json = Dict[str, Any]
Answer = Tuple[Json, List[jobs.Signal]]


def handle(queue: jobs.Queue, directory: str, request: Json, now: float) -> Answer:
    """Answer one request. Raises BatchError for one that is refused."""
    return _HANDLERS[request["do"]](queue, directory, request, now)


def view(directory: str, job: jobs.Job, never: Tuple[str, str] = ("", "")) -> Json:
    """The job in an answer. `never`: code and reason for which it can never start."""
    return {
        "id": "%d@%s" % (job.id, directory),
        "name": job.name,
        "state": job.state,
        "processors": job.processors,
        "exit_status": job.exit_status,
        "ending": job.ending,
        "reason": never[1] or job.reason,
        "stuck": never[0],
    }


def number_of(batch_id: str) -> int:
    """The number in `12@DIRECTORY`; 0, which no job has, for any other text."""
    digits = batch_id.partition("@")[0]
    return int(digits) if digits.isdigit() else 0


def environment_of(job: jobs.Job, directory: str, outer: Outer) -> Dict[str, str]:
    """The variables of a job: its id, its nodes, and what starts node agents on them."""
    outer_env = {name: value for name, value in node_identity.of_batch(outer.environment).items() if "JWT" not in name}
    outer_env.update((name, outer.environment[name]) for name in ("PATH",) if name in outer.environment)
    return {
        node_identity.ALLOCATION_JOB: "%d@%s" % (job.id, directory),
        "KOALA_ALLOCATION_HOSTS": ",".join("%s:%d" % (name, processors) for name, processors in job.hosts),
        "KOALA_ALLOCATION_BATCH": outer.found.batch,
        "KOALA_ALLOCATION_OUTER": json.dumps(outer_env) if len(job.hosts) > 1 else "{}",
    }


def refusal(error: BatchError) -> Json:
    described = {"code": error.code, "whose": error.whose, "message": error.message, "advice": error.advice}
    return {"error": described}


def unusable(directory: str, error: OSError) -> BatchError:
    return ClusterError(
        "queue_unusable",
        "The queue in %s cannot be used: %s." % (directory, error),
        "Free space there or make it writable, or name another `shared` directory in the grid file.",
    )


def _submit(queue: jobs.Queue, directory: str, request: Json, now: float) -> Answer:
    text = request["script"]
    settings = script.directives(text)
    plain = ["-c", text, request["path"]] if len(text) < _MOST_INLINE else [request["path"]]
    job = jobs.Job(
        id=0,
        name=settings["name"],
        directory=settings["directory"],
        output=settings["output"],
        command=json.loads(settings["command"]) if settings["command"] else ["/bin/sh", *plain],
        processors=settings["processors"],
        walltime_s=settings["walltime"],
        submitted_at=now,
        per_node=settings["per_node"],
        lowest=bool(settings["lowest"]),
    )
    code, why = queue.hindrance(job, now)
    if code == "allocation_too_short":
        advice = "Ask for a shorter walltime, or start another allocation."
        raise ClusterError(code, "The job does not fit into the allocation: %s." % why, advice)
    if code:
        raise RequestError(
            code, "The job can never start here: %s." % why, "Ask for fewer processors, or use a larger one."
        )
    return {"id": view(directory, queue.add(job))["id"]}, []


def _status(queue: jobs.Queue, directory: str, request: Json, now: float) -> Answer:
    wanted = {number_of(batch_id) for batch_id in request["ids"]}
    lost = [_lost(number) for number in wanted if number not in queue.jobs and 0 < number <= queue.unknown_to]
    return _listed(queue, directory, [queue.jobs[number] for number in wanted if number in queue.jobs] + lost, now), []


def _lost(number: int) -> jobs.Job:
    """A job of which nothing is known since the queue's files were damaged."""
    return jobs.Job(number, "", "", "", [], 0, 0, 0, state=jobs.ENDED, ending="lost", reason=DAMAGED)


def _find(queue: jobs.Queue, directory: str, request: Json, now: float) -> Answer:
    named = [job for job in queue.jobs.values() if job.name == request["name"]]
    return _listed(queue, directory, [max(named)] if named else [], now), []


def _cancel(queue: jobs.Queue, directory: str, request: Json, now: float) -> Answer:
    sent = [each for batch_id in request["ids"] for each in queue.cancel(number_of(batch_id), now)]
    return {}, sent


def _suspend(queue: jobs.Queue, directory: str, request: Json, now: float) -> Answer:
    try:
        return {}, [each for batch_id in request["ids"] for each in queue.suspend(number_of(batch_id), now)]
    except KeyError as error:
        raise _does_not_run(error) from error


def _resume(queue: jobs.Queue, directory: str, request: Json, now: float) -> Answer:
    """The jobs go on by `go_on`, which may be at once."""
    try:
        for batch_id in request["ids"]:
            queue.resume(number_of(batch_id))
    except KeyError as error:
        raise _does_not_run(error) from error
    return {}, []


def _does_not_run(error: KeyError) -> RequestError:
    return RequestError("not_running", "Job %s of the queue does not run." % error, "See how it has ended.")


def _capacity(queue: jobs.Queue, directory: str, request: Json, now: float) -> Answer:
    """Jobs that ended some time ago are left out: there may be thousands in a minute.

    No node shows as free what suspended jobs need to go on.
    """
    shown = [job for _, job in sorted(queue.jobs.items()) if job.ended_at is None or job.ended_at >= now - SHOWN_S]
    answer = _listed(queue, directory, shown, now)
    nodes = [[queue.nodes[name], max(0, free)] for name, free in queue.unreserved().items()]
    left_s = None if queue.ends_at is None else max(0, int(queue.ends_at - now))
    return dict(answer, slots=queue.total, nodes=nodes, left_s=left_s, memory=queue.memory), []


def _describe(queue: jobs.Queue, directory: str, request: Json, now: float) -> Answer:
    return {"version": VERSION, "slots": queue.total}, []


def _listed(queue: jobs.Queue, directory: str, listed: List[jobs.Job], now: float) -> Json:
    return {"jobs": [view(directory, job, _never(queue, job, now)) for job in listed]}


def _never(queue: jobs.Queue, job: jobs.Job, now: float) -> Tuple[str, str]:
    return queue.hindrance(job, now) if job.state == jobs.QUEUED else ("", "")


_HANDLERS: Dict[str, Callable[[jobs.Queue, str, Json, float], Answer]] = {
    "submit": _submit,
    "status": _status,
    "find": _find,
    "cancel": _cancel,
    "suspend": _suspend,
    "resume": _resume,
    "capacity": _capacity,
    "describe": _describe,
}
