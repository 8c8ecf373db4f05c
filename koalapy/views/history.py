"""The history of a job in sentences: one for each kind of line."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from koalapy.answers import jobs as answers
from koalapy.coallocation.user_requests import MOST_NAMED
from koalapy.model.counts import counted_as
from koalapy.model.history import History, HistoryKind
from koalapy.model.identity import FIRST_LAUNCHER, AttemptId
from koalapy.model.textfile.words import listed
from koalapy.model.units import Duration, Instant, format_duration, format_instant
from koalapy.views.recovery import found_as

_MOST_CHOICES = 5  # listed in a sentence


def sentence(line: History) -> str:
    """Describe a line in a sentence. A kind that is not in the table is described by its own words."""
    describe = SENTENCES.get(line.kind)
    return " ".join(describe(line).split()) if describe else _plainly(line)


def event(line: History) -> answers.JobEvent:
    """Describe a line of a job's history. Instants among its details are formatted as all instants are."""
    details = {name: _detail(name, value) for name, value in line.details.items()}
    event = {"at": format_instant(line.at), "kind": line.kind, "text": sentence(line), **details}
    return cast(answers.JobEvent, event)


def _detail(name: str, value: Any) -> Any:
    return format_instant(Instant(value)) if name.endswith("_at") and isinstance(value, int) else value


def notes_of(history: Iterable[History]) -> list[str]:
    """Return the sentences on files that were not fetched."""
    return [note for line in history for note in line.details.get("notes", ())]


# ---- of the job


def _submitted(line: History) -> str:
    kind = line.details.get("type")
    what = "it is a sweep" if kind == "sweep" else f"its request is {kind}"
    if kind == "flow":
        what = f"it is a flow of {counted_as(line.details.get('jobs'), 'job')}"
    if flow := line.details.get("flow"):
        what += f", and it is a part of flow {flow}"
    if after := line.details.get("after"):
        what += f"; it waits for {_jobs(after)}"
    if isinstance(begin := line.details.get("begins_at"), int):
        what += f"; it begins no sooner than {format_instant(Instant(begin))}"
    return f"Submitted by {line.details.get('owner') or 'its user'}; {what}."


def _jobs(ids: Sequence[object]) -> str:
    """Name jobs, of which a line lists a few only."""
    more = " and others" if len(ids) >= MOST_NAMED else ""
    return f"{'job' if len(ids) == 1 else 'jobs'} {', '.join(map(str, ids))}{more}"


def _line_unreadable(line: History) -> str:
    return f"This line of its history cannot be read; it is record {line.details.get('record')} of the store."


def _cancel_requested(line: History) -> str:
    forced = ", without waiting for unreachable clusters" if line.details.get("force") else ""
    return f"Its user cancelled it{forced}."


def _lowered(line: History) -> str:
    numbers = line.details.get("processors") or {}
    why = "it has waited long enough" if line.details.get("after") == "wait" else "its claim failed"
    lowered = ", ".join(f"component {index} for {new} instead of {old}" for index, (old, new) in numbers.items())
    return f"It asks for fewer processors, since {why}: {lowered}."


def _claimed(line: History) -> str:
    clusters = line.details.get("clusters") or {}
    where = ", ".join(f"component {index} on {cluster}" for index, cluster in clusters.items())
    wait = line.details.get("barrier_wait")
    held = ""
    if isinstance(wait, int):
        held = f" Components at barriers wait {format_duration(Duration(wait))} for those in queues."
    return f"Claimed: {where or 'nothing'}.{held}"


def _preempts(line: History) -> str:
    done = (line.details.get("suspended"), "suspended"), (line.details.get("jobs"), "vacated")
    parts = [f"{_jobs(jobs)} {'is' if len(jobs) == 1 else 'are'} {what}" for jobs, what in done if jobs]
    return f"It did not fit, so {' and '.join(parts)} for it."


def _suspended(line: History) -> str:
    by, priority = line.details.get("by"), line.details.get("priority")
    return f"Job {by}, of priority {priority}, needs its processors, so it is suspended until that job has ended."


def _resumed(line: History) -> str:
    return f"Job {line.details.get('by')} needs its processors no more, so it goes on."


def _released(line: History) -> str:
    count = line.details.get("processes")
    processes = counted_as(count, "process", "processes")
    return f"All its components are at their barriers and are released, with {processes}."


def _stopping(line: History) -> str:
    outcome = str(line.details.get("outcome"))
    texts = _SWEEP_OUTCOMES if line.details.get("sweep") else _FLOW_OUTCOMES if line.details.get("flow") else _OUTCOMES
    return _because(f"{texts.get(outcome, f'It is stopped ({_words(outcome)})')}", line)


_OUTCOMES = {
    "submission_failure": "Its claim failed, and is given back; this counts as a submission failure",
    "completion_failure": "It did not complete, and its attempts are cancelled; this counts as a completion failure",
    "next_choice": "It could not start on its choice, and is given back; it has another one, so nothing is counted",
    "give_back": "It is given back, and nothing is counted",
    "vacated": "It is vacated, and nothing is counted",
    "hold": "It is given back, to be held",
    "done": "All its components have ended well",
    "failed": "It has failed, and its remaining attempts are cancelled",
    "cancelled": "It is cancelled, with its remaining attempts",
}
_FLOW_OUTCOMES = {
    "failed": "A job of it has failed, and the rest of it is cancelled",
    "cancelled": "It is cancelled, with all its jobs that are left",
}
_SWEEP_OUTCOMES = _OUTCOMES | {
    "hold": "It gives its nodes back, to be held",
    "done": "All its parameters are done, and its Launchers end",
}


def _unheld(line: History) -> str:
    place = "for other jobs" if line.details.get("state") == "blocked" else "in the queue"
    return f"Its user released it: it waits {place} again."


def _requeued(line: History) -> str:
    submissions, completions = (line.details.get(f"{kind}_failures", 0) for kind in ("submission", "completion"))
    place = "It is held" if line.details.get("state") == "held" else "It waits in the queue again"
    if not submissions and not completions:
        return _because(place, line)
    counted = (
        f"after {counted_as(submissions, 'submission failure')} and {counted_as(completions, 'completion failure')}"
    )
    return _because(f"{place}, {counted}", line)


def _choices_made(line: History) -> str:
    choices = line.details.get("choices") or ()
    listed = "; ".join(
        f"{number}: {' + '.join(f'{cluster} ({processors})' for cluster, processors in each['clusters'])}"
        for number, each in enumerate(choices[:_MOST_CHOICES], 1)
    )
    more = f"; and {len(choices) - _MOST_CHOICES} more" if len(choices) > _MOST_CHOICES else ""
    return f"It can run on {counted_as(len(choices), 'choice')} of clusters, in this order: {listed}{more}."


def _choice_refused(line: History) -> str:
    which = f"choice {line.details.get('choice')} of {line.details.get('choices')}, {line.details.get('clusters')}"
    return _because(f"It did not start on {which}", line)


def _choices_ended(line: History) -> str:
    count = counted_as(line.details.get("submission_failures"), "submission failure")
    return _because(f"No choice is left that fits; it has {count} now", line)


def _collected(line: History) -> str:
    notes = " ".join(str(note) for note in line.details.get("notes") or ())
    if line.details.get("message"):
        return f"{_because('Some of its output could not be fetched', line)} {notes}"
    count = (
        f" ({counted_as(line.details['files'], 'file')}, {counted_as(line.details.get('size'), 'byte')})"
        if "files" in line.details
        else ""
    )
    return f"Its output was fetched into its directory{count}. {notes}"


def _output_pruned(line: History) -> str:
    left = ", ".join(str(each) for each in line.details.get("remains_on") or ())
    but = f", except on {left}" if left else ""
    return f"Its directories on the clusters are pruned, with the output in them{but}."


def _kept(line: History) -> str:
    notes = " ".join(str(note) for note in line.details.get("notes") or ())
    if line.details.get("message"):
        return f"{_because('Some of its standard output and error could not be fetched', line)} {notes}".rstrip()
    omitted = line.details.get("omitted_bytes")
    cut = f", without {counted_as(omitted, 'byte')} in the middle, which exceeded the limit" if omitted else ""
    size = counted_as(line.details.get("size"), "byte")
    return f"Its standard output and error were fetched: {size}{cut}. {notes}".rstrip()


def _notified(words: str) -> Callable[[History], str]:
    """Return a function that describes a notification in these words; `{whom}` and `{change}` are replaced."""

    def describe(line: History) -> str:
        details = line.details
        text = words.format(whom=details.get("to"), change=details.get("on"))
        number = details.get("number")
        tries = f" at try {number}" if isinstance(number, int) and number > 1 else ""
        due_at = details.get("due_at")
        again = f" The next try is at {format_instant(Instant(due_at))}." if isinstance(due_at, int) else ""
        return f"{_because(f'{text}{tries}', line)}{again}"

    return describe


# ---- of a sweep


def _admitted(line: History) -> str:
    """Describe an admission; `runners` in the details counts all active sweeps, this one too."""
    others = line.details.get("runners")
    if not isinstance(others, int):
        return "It is admitted."
    return f"It is admitted; {f'{others} sweeps are' if others > 1 else 'no other sweep is'} active now."


def _nodes(words: str) -> Callable[[History], str]:
    """Return a function that describes a line in these words; `{nodes}` is replaced by their number and cluster."""

    def describe(line: History) -> str:
        nodes = f"{counted_as(line.details.get('nodes'), 'node')} on {line.details.get('cluster')}"
        return _because(words.format(nodes=nodes), line)

    return describe


def _preempted(line: History) -> str:
    parameters = line.details.get("parameters")
    lost = f", with {counted_as(parameters, 'parameter')} that will run again" if parameters else ""
    nodes = _nodes("Others' jobs reclaim {nodes} at once")(line).rstrip(".")
    return _because(f"{nodes}{lost}", line)


def _black_hole(line: History) -> str:
    host, cluster = line.details.get("host"), line.details.get("cluster")
    return _because(f"Every parameter fails at once on {host} of {cluster}: the node is excluded", line)


def _launcher_lost(line: History) -> str:
    return _because(f"A Launcher on {line.details.get('cluster')} was lost; its parameters will run again", line)


# ---- of an attempt


def _batch_submitted(line: History) -> str:
    batch_id = line.details.get("batch_id")
    return f"{_attempt(line)} is in the batch system, as job {batch_id}."


def _submission_failed(line: History) -> str:
    return _because(f"{_attempt(line)} could not be submitted", line)


def _staged(line: History) -> str:
    size, version = line.details.get("size"), str(line.details.get("version"))[:12]
    files = counted_as(line.details.get("files"), "file")
    return f"{_attempt(line)} has its {files} ({counted_as(size, 'byte')}, version {version})."


def _found(line: History) -> str:
    found, by = str(line.details.get("found")), str(line.details.get("by"))
    if found == "ended":
        return f"{_with_batch_job(line)} had ended before koalad reconnected, by its {by}."
    was = _words(str(line.details.get("was")))
    return (
        f"{_with_batch_job(line)} was found again when koalad reconnected: {found_as(by, found)} (it was {was} before)."
    )


def _ended(line: History) -> str:
    status = line.details.get("exit_status")
    how = "ended well" if not line.details.get("code") else "ended"
    if line.details.get("state") == "cancelled":
        how = "was ended, as requested"
    exit_status = "" if status is None else f", with exit status {status}"
    return _because(f"{_with_batch_job(line)} {how}{exit_status}{_times(line)}", line)


def _times(line: History) -> str:
    """List the instants of an attempt's states, as far as it came."""
    instants = [
        f"{what} {format_instant(Instant(line.details[name]))}"
        for name, what in _INSTANTS.items()
        if isinstance(line.details.get(name), int)
    ]
    return f" ({', '.join(instants)})" if instants else ""


_INSTANTS = {
    "at_barrier_at": "at its barrier",
    "released_at": "released",
    "started_at": "started",
    "ended_at": "ended",
}


def _cancel_pending(line: History) -> str:
    """Describe a pending cancel. A line with a reason means that the cluster can be reached."""
    if line.details.get("message"):
        return _because(f"{_attempt(line)} cannot be ended now; its cancel is pending", line)
    return _of_attempt("cannot be ended while {on} is out of reach; its cancel is pending")(line)


def _cluster_excluded(line: History) -> str:
    until = line.details.get("until_at")
    when = f" until {format_instant(Instant(until))}" if isinstance(until, int) else " for a while"
    return f"The cluster {line.details.get('cluster')} is excluded for this job{when}."


def _given_back(line: History) -> str:
    again = line.details.get("again_at")
    sooner = ", or when another one has come to its barrier" if line.details.get("at_once", True) else ""
    when = f" at {format_instant(Instant(again))}{sooner}" if again else ""
    why = "others are still in queues" if sooner else "an older job waits for its processors"
    return f"{_attempt(line)} is given back, since {why}; it is queued again{when}."


def _candidate_won(line: History) -> str:
    others = [str(each) for each in line.details.get("others") or ()]
    left = f"; it leaves the queue of {listed(others, 'and')}" if others else ""
    return f"{_attempt(line)} is the first of its component to start{left}."


def _of_attempt(words: str) -> Callable[[History], str]:
    """Return a function that describes a line in these words; `{on}` is replaced by the cluster."""
    return lambda line: _because(f"{_attempt(line)} {words.format(on=line.details.get('cluster'))}", line)


def _of_lease(words: str) -> Callable[[History], str]:
    """Return a function that describes a line in these words, with its `site`, `cluster` and `processors`."""

    def describe(line: History) -> str:
        site, cluster = line.details.get("site"), line.details.get("cluster")
        processors = counted_as(line.details.get("processors"), "processor")
        return _because(words.format(site=site, cluster=cluster, processors=processors), line)

    return describe


def _requested(line: History) -> str:
    """Describe a resource request. One for a part of a job has the components, and where the others would be."""
    site, processors = line.details.get("site"), counted_as(line.details.get("processors"), "processor")
    components, kept = line.details.get("components"), line.details.get("kept_on")
    if not isinstance(components, list) or not isinstance(kept, list):
        return f"The site {site} is asked for {processors}."
    one = len(components) == 1
    which = f"component{'' if one else 's'} {', '.join(map(str, components))}"
    there, whole = ", ".join(map(str, kept)), line.details.get("of")
    return f"The site {site} is asked for {processors} of {whole}, for {which}: the others fit on {there}."


def _for_whom(line: History) -> str:
    job = line.details.get("needed_by")
    return "local jobs" if job is None else f"job {job}"


def _with_times(words: str) -> Callable[[History], str]:
    return lambda line: f"{_attempt(line)} {words}{_times(line)}."


def _plain(words: str) -> Callable[[History], str]:
    return lambda line: _because(words, line)


SENTENCES: dict[str, Callable[[History], str]] = {
    HistoryKind.LINE_UNREADABLE: _line_unreadable,
    HistoryKind.WORK_SUBMITTED: _submitted,
    HistoryKind.MAY_BEGIN: _plain("All that it was to begin after is over, and it waits in the queue"),
    HistoryKind.WORK_HELD: _plain("It is held by its user"),
    HistoryKind.WORK_UNHELD: _unheld,
    HistoryKind.CANCEL_REQUESTED: _cancel_requested,
    HistoryKind.JOB_LOWERED: _lowered,
    HistoryKind.JOB_CLAIMED: _claimed,
    HistoryKind.CHOICES_MADE: _choices_made,
    HistoryKind.CHOICE_REFUSED: _choice_refused,
    HistoryKind.CHOICES_ENDED: _choices_ended,
    HistoryKind.JOB_PREEMPTS: _preempts,
    HistoryKind.JOB_SUSPENDED: _suspended,
    HistoryKind.JOB_RESUMED: _resumed,
    HistoryKind.JOB_RELEASED: _released,
    HistoryKind.JOB_ENDED_FIRST: _plain("All its programs had ended well before they were stopped, so it is complete"),
    HistoryKind.WORK_STOPPING: _stopping,
    HistoryKind.WORK_REQUEUED: _requeued,
    HistoryKind.STORE_RESTORED: _plain(
        "The store was restored from a backup, or another koalad used a copy of it: "
        "the clusters are asked for the job's present state"
    ),
    HistoryKind.JOB_FOUND_RELEASED: _plain("The clusters report that it was released since; it continues"),
    HistoryKind.WORK_DONE: _plain("It is done"),
    HistoryKind.WORK_FAILED: _plain("It failed"),
    HistoryKind.WORK_CANCELLED: _plain("It is cancelled"),
    HistoryKind.OUTPUT_COLLECTED: _collected,
    HistoryKind.OUTPUT_PRUNED: _output_pruned,
    HistoryKind.OUTPUT_KEPT: _kept,
    HistoryKind.NOTIFICATION_SENT: _notified("The notification that it is {change} was sent ({whom})"),
    HistoryKind.NOTIFICATION_NOT_TAKEN: _notified("The notification that it is {change} was not taken ({whom})"),
    HistoryKind.NOTIFICATION_GIVEN_UP: _notified("The notification that it is {change} is given up ({whom})"),
    HistoryKind.NOTIFICATION_UNKNOWN: _notified("The notification that it is {change} may not have arrived ({whom})"),
    HistoryKind.SWEEP_WAITS: _plain("It waits to be admitted"),
    HistoryKind.POLICY_FAILED: _plain("A policy failed or gave an invalid answer"),
    HistoryKind.SWEEP_ADMITTED: _admitted,
    HistoryKind.SWEEP_GROWN: _nodes("It grows by {nodes}"),
    HistoryKind.SWEEP_SHRUNK: _nodes("It shrinks by {nodes}"),
    HistoryKind.SWEEP_PREEMPTED: _preempted,
    HistoryKind.SWEEP_SUSPENDED: _nodes(
        "The batch system suspends {nodes}: nothing is lost, and the programs there pause"
    ),
    HistoryKind.SWEEP_RESUMED: _nodes("The batch system resumes {nodes}"),
    HistoryKind.LAUNCHER_LOST: _launcher_lost,
    HistoryKind.LAUNCHER_WITHDRAWN: _nodes(
        "It cancels the Launchers of {nodes}, whose batch jobs did not start in time"
    ),
    HistoryKind.BLACK_HOLE_EXCLUDED: _black_hole,
    HistoryKind.BLACK_HOLE_TRUSTED: _of_attempt(
        "failed on every parameter; other nodes fail too, so the program is the cause, not the node"
    ),
    HistoryKind.LAUNCHER_CLAIMED: _of_attempt("was claimed"),
    HistoryKind.LAUNCHER_RELEASED: _of_attempt("was released from its barrier"),
    HistoryKind.LAUNCHER_STOPPING: lambda line: _because(f"{_attempt(line)} is being stopped", line),
    HistoryKind.LEASE_REQUESTED: _requested,
    HistoryKind.LEASE_REFUSED: _of_lease("The site {site} lends nothing for it"),
    HistoryKind.LEASE_BOUND: _of_lease("{processors} were lent for it, as {cluster}"),
    HistoryKind.LEASE_ENDED: _of_lease("The lease {cluster} has ended"),
    HistoryKind.LEASE_REVOKED: lambda line: f"It is taken back for {_for_whom(line)}.",
    HistoryKind.LEASE_OUT_OF_HOURS: _of_lease(
        "The lease of {processors} of the site {site} is taken back: it does not lend now"
    ),
    HistoryKind.LEASE_NEEDED: _of_lease("A lease of {processors} of the site {site} is taken back for it"),
    HistoryKind.JOB_REVOKED: _of_lease("The site {site} takes {cluster} back"),
    HistoryKind.JOB_SENT: lambda line: f"It is sent to the site {line.details.get('site')}.",
    HistoryKind.JOB_TAKEN: lambda line: (
        f"The site {line.details.get('site')} runs it, as its job {line.details.get('there')}."
    ),
    HistoryKind.CHANGE_SENT: lambda line: (
        f"The site {line.details.get('site')} is asked to {line.details.get('change')} it."
    ),
    HistoryKind.ATTEMPT_SUBMITTED: _batch_submitted,
    HistoryKind.SUBMISSION_FAILED: _submission_failed,
    HistoryKind.FILES_STAGED: _staged,
    HistoryKind.ATTEMPT_FOUND: _found,
    HistoryKind.ATTEMPT_RECALLED: _of_attempt(
        "was submitted after the backup from which the store was restored; the job continues with it"
    ),
    HistoryKind.ATTEMPT_ALLOCATED: _of_attempt("has its processors: its batch job has started"),
    HistoryKind.ATTEMPT_QUEUED: _of_attempt("is in the batch queue"),
    HistoryKind.ATTEMPT_AT_BARRIER: _with_times("is at its barrier, and waits for the others"),
    HistoryKind.ATTEMPT_RELEASED: _with_times("has left its barrier"),
    HistoryKind.ATTEMPT_RUNNING: _with_times("runs"),
    HistoryKind.ATTEMPT_SUSPENDED: _of_attempt("is suspended by its batch system"),
    HistoryKind.ATTEMPT_UNKNOWN: _of_attempt("is unknown: {on} must answer before koalad knows whether it runs"),
    HistoryKind.ATTEMPT_ENDED: _ended,
    HistoryKind.ATTEMPT_CLEANED_UP: _of_attempt("left nothing in the batch system"),
    HistoryKind.COMPONENT_OMITTED: _of_attempt("is optional, and is omitted from this try"),
    HistoryKind.CANDIDATE_QUEUED: _of_attempt("enters the queue of {on} too"),
    HistoryKind.CANDIDATE_WON: _candidate_won,
    HistoryKind.CANDIDATE_LOST: _of_attempt("leaves the race; the others of its component keep their places"),
    HistoryKind.COMPONENT_FILLED: lambda line: f"{_attempt(line)} is held, and sweeps may use its processors.",
    HistoryKind.COMPONENT_GIVEN_BACK: _given_back,
    HistoryKind.COMPONENT_QUEUED_AGAIN: _of_attempt("is queued again"),
    HistoryKind.CLUSTER_EXCLUDED: _cluster_excluded,
    HistoryKind.CANCEL_PENDING: _cancel_pending,
    HistoryKind.CANCEL_COMPLETED: _of_attempt("was cancelled at last: nothing of it is left"),
    HistoryKind.CANCEL_GIVEN_UP: _of_attempt("is given up: its cluster has left the grid, and nobody cancels it there"),
}


# ---- words


def _attempt(line: History) -> str:
    """Name the attempt of a line. Lines of an older koalapy may name neither attempt nor cluster."""
    component, number, cluster = (line.details.get(name) for name in ("component", "attempt", "cluster"))
    who = f"Attempt {AttemptId(line.job, component or 0, number)}" if number else f"Component {component}"
    if number and line.job >= FIRST_LAUNCHER:
        who = f"Launcher {AttemptId(line.job, component or 0, number)}"
    return f"{who} on {cluster}" if cluster else who


def _with_batch_job(line: History) -> str:
    batch_id = line.details.get("batch_id")
    return _attempt(line) + (f" (batch job {batch_id})" if batch_id else "")


def _because(text: str, line: History) -> str:
    """Append the reason of a line, and the batch system's message."""
    message, output = line.details.get("message"), line.details.get("output")
    speaker = _SPEAKERS.get(str(line.details.get("code")), "The batch system said")
    quoted = " / ".join(str(output or "").splitlines())
    quote = f" {speaker}: {quoted}" if quoted and quoted not in str(message) else ""
    return f"{text}: {message}{quote}" if message else f"{text}.{quote}"


_SPEAKERS = {
    "exit_status": "Its standard error ended with",
    "killed": "Its standard error ended with",
    "setup_failed": "The shell of `setup` said",
    "login_failed": "The login shell said",
}


def _plainly(line: History) -> str:
    details = ", ".join(f"{_words(name)} {value}" for name, value in line.details.items() if value not in (None, ""))
    what = _words(line.kind).capitalize()
    return f"{what}: {details}." if details else f"{what}."


def _words(name: str) -> str:
    return name.replace("_", " ")
