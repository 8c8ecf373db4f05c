"""`koala status`: troubles of koalad itself, in sentences."""

from collections.abc import Iterable
from typing import Literal, cast

from koalapy.answers import koalad as answers
from koalapy.coallocation.restored_store import doubtful
from koalapy.core.notifications import Notifications
from koalapy.engine import Engine
from koalapy.model.attempt import Attempt
from koalapy.model.counts import counted_as
from koalapy.model.identity import FIRST_LAUNCHER, LAUNCHERS_END
from koalapy.model.job import Counters
from koalapy.model.units import Instant, format_instant
from koalapy.model.unreadable import Unreadable

UnreadableKind = Literal["job", "attempt", "pilot", "command", "results", "history", "learned"]
NEW_STORE = "When nothing runs any more, begin a new store: see docs/store.md, `When the ids are used up`."


def common_waits(engine: Engine) -> list[str]:
    """Sentences on clusters whose answers all waiting jobs need after a start or a restored store."""
    if missing := engine.core.startup_gate.missing:
        answered = "it has answered or is" if len(missing) == 1 else "these have answered or are"
        placed = f"Waiting jobs that could be placed on {' or '.join(missing)}"
        return [f"{placed} go on once {answered} seen to be out of reach."]
    jobs, unanswered = doubtful(engine.records), engine.unrecalled_clusters
    if not jobs:
        return []
    known = counted_as(len(jobs), "older job is", "older jobs are")
    sentences = [
        "The store was restored from a backup, or another koalad used a copy of it: "
        f"{known} looked for on the clusters before anything is run again."
    ]
    if unanswered:
        sentences.append(f"Those that wait go on once {', '.join(unanswered)} can report whether they ran there since.")
    return [" ".join(sentences)]


def ids_used(counters: Counters) -> list[str]:
    """Return a sentence for each kind of ids of which 90 % or more are used."""
    kinds = (
        ("jobs", counters.next_job, 1, FIRST_LAUNCHER),
        ("Launchers", counters.next_launcher, FIRST_LAUNCHER, LAUNCHERS_END),
    )
    return [
        f"The ids of {kind} are nearly used up: {end - following:,} of {end - first:,} are left. {NEW_STORE}"
        for kind, following, first, end in kinds
        if 10 * (end - following) <= end - first
    ]


def unreadable(found: Iterable[Unreadable]) -> answers.UnreadableAnswer:
    """Answer with records that cannot be read, why, and how to repair them."""
    return {
        "schema": "koala.unreadable/1",
        "records": [
            {
                "record": each.name,
                "kind": cast(UnreadableKind, each.kind),
                "job": each.job,
                "reason": f"{each.why}. {each.repair_advice}",
            }
            for each in found
        ],
    }


def pending_cancel(attempt: Attempt) -> answers.PendingCancel:
    """Describe a pending cancel."""
    return {
        "attempt": str(attempt.id),
        "cluster": attempt.cluster,
        "batch_id": attempt.batch_id or None,
        "since": format_instant(attempt.detached_at or Instant(0)),
        "reason": str(attempt.stuck) if attempt.stuck else None,
    }


def notification_troubles(notifications: Notifications) -> list[str]:
    """Return a sentence on notifications that wait for another try, and one on those that were given up."""
    waiting = [each for each in notifications.unsettled.values() if each.failure is not None]
    sentences: list[str] = []
    if waiting:
        last = max(waiting, key=lambda each: each.notification.at)
        count = counted_as(len(waiting), "notification waits", "notifications wait")
        about = f"job {last.notification.id.job}, {last.notification.to}"
        sentences.append(f"{count} for another try; the newest ({about}): {last.failure}")
    if notifications.given_up:
        notification, reason = notifications.given_up[-1]
        count = counted_as(len(notifications.given_up), "notification was", "notifications were")
        newest = f"the newest (job {notification.id.job}, {notification.to}): {reason}"
        sentences.append(f"{count} not sent, or may not have arrived, since koalad started; {newest}")
    return sentences


def unreadable_troubles(found: Iterable[Unreadable]) -> list[str]:
    """Return a sentence or two for each record that cannot be read."""
    return [f"The record {each.name} cannot be read ({each.why}). {each.repair_advice}" for each in found]
