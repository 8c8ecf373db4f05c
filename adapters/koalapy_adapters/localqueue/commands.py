"""The local queue's commands. Each repairs the queue, starts jobs, and answers with a JSON document."""

import os
import signal
from typing import Any, Callable, Dict, List, Optional

from koalapy_adapters.errors import RequestError
from koalapy_adapters.host.descendants import send, start_of
from koalapy_adapters.localqueue import jobs, script
from koalapy_adapters.localqueue.recovery import state_of
from koalapy_adapters.localqueue.scheduling import mend, remove_script, start_jobs
from koalapy_adapters.localqueue.spool import Spool, now

VERSION = "1"

Answer = Dict[str, Any]


class Queue:
    """The queue of a command line. `slots` and `command` (argv that starts the pushed file) are stored if given."""

    def __init__(self, directory: str, slots: Optional[int] = None, command: Optional[List[str]] = None) -> None:
        self.spool = Spool(directory)
        self.slots = slots
        self.command = command

    def change(self, change: Callable[[jobs.State], jobs.State]) -> jobs.State:
        """Repair the state, change it, and start the jobs that fit, all under the lock. Returns the new state."""
        with self.spool as spool:
            if self.command:
                spool.write_starter(self.command)
            state = state_of(spool)
            if self.slots is not None:
                state = state._replace(slots=self.slots)
            return start_jobs(spool, change(mend(spool, state)), _keep)


def submit(queue: Queue, words: List[str]) -> Answer:
    """Submit a job. Raises RequestError if its script can never run."""
    text = script.read(words)
    wishes = script.directives(text)
    number: List[int] = []

    def add(state: jobs.State) -> jobs.State:
        if wishes["processors"] > state.slots:
            raise _too_large(wishes["processors"], state.slots)
        number.append(state.next_id)
        job = jobs.Job(
            id=state.next_id,
            name=wishes["name"],
            directory=wishes["directory"],
            output=wishes["output"],
            processors=wishes["processors"],
            walltime_s=wishes["walltime"],
            submitted_at=now(),
            lowest=bool(wishes["lowest"]),
        )
        queue.spool.write_script(job.id, text)
        return jobs.with_job(state._replace(next_id=job.id + 1), job)

    queue.change(add)
    return {"id": _full_id(queue, number[0])}


def status(queue: Queue, words: List[str]) -> Answer:
    wanted = {_number(word) for word in words}
    state = queue.change(_unchanged)
    return {"jobs": [_view(queue, state, job) for job in state.jobs.values() if job.id in wanted]}


def find(queue: Queue, words: List[str]) -> Answer:
    state = queue.change(_unchanged)
    named = [job for job in state.jobs.values() if job.name == words[0]]
    newest = max(named) if named else queue.spool.archived(words[0])
    return {"jobs": [_view(queue, state, newest)] if newest else []}


def cancel(queue: Queue, words: List[str]) -> Answer:
    wanted = {_number(word) for word in words}

    def end(state: jobs.State) -> jobs.State:
        for job in [job for job in state.jobs.values() if job.id in wanted]:
            if job.state == jobs.QUEUED:
                remove_script(queue.spool, job)
                state = jobs.with_job(state, jobs.ended(job, now(), "cancelled"))
            elif job.state == jobs.RUNNING and start_of(job.keeper) == job.keeper_start:
                send([job.keeper], signal.SIGTERM)
        return state

    queue.change(end)
    return {}


def capacity(queue: Queue, words: List[str]) -> Answer:
    state = queue.change(_unchanged)
    listed = [_view(queue, state, job) for _, job in sorted(state.jobs.items())]
    return {"slots": state.slots, "memory": _memory(), "jobs": listed}


def _memory() -> int:
    """The bytes of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def describe(queue: Queue, words: List[str]) -> Answer:
    return {"version": VERSION, "slots": queue.change(_unchanged).slots}


COMMANDS: Dict[str, Callable[[Queue, List[str]], Answer]] = {
    "submit": submit,
    "status": status,
    "find": find,
    "cancel": cancel,
    "capacity": capacity,
    "describe": describe,
}


def _keep(directory: str, job: jobs.Job) -> None:
    from koalapy_adapters.localqueue import keeper  # imported late: commands that start nothing do not need it

    keeper.keep(directory, job)


def _unchanged(state: jobs.State) -> jobs.State:
    return state


def _view(queue: Queue, state: jobs.State, job: jobs.Job) -> Answer:
    never = job.state == jobs.QUEUED and job.processors > state.slots
    return {
        "id": _full_id(queue, job.id),
        "name": job.name,
        "state": job.state,
        "processors": job.processors,
        "exit_status": job.exit_status,
        "ending": job.ending,
        "reason": "larger than the queue's %d slots" % state.slots if never else job.reason,
        "stuck": "too_many_processors" if never else "",
    }


def _full_id(queue: Queue, number: int) -> str:
    return "%d@%s" % (number, queue.spool.directory)


def _number(word: str) -> int:
    """The number in `12` or `12@DIRECTORY`; 0, which no job has, for any other text."""
    digits = word.partition("@")[0]
    return int(digits) if digits.isdigit() else 0


def _too_large(processors: int, slots: int) -> RequestError:
    return RequestError(
        "too_many_processors",
        "The job asks for %d processors, and the local queue has %d slots." % (processors, slots),
        "Ask for fewer processors, or raise `slots` in the grid file.",
    )
