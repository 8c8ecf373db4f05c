"""Clusters, their logins, and unknown tags on them, as JSON."""

from collections.abc import Collection, Iterable, Sequence
from typing import Literal, cast

from koalapy import answers
from koalapy.model.units import SECOND, format_instant
from koalapy.runtime.grid_changes import Reloaded
from koalapy.runtime.logins import LoginState
from koalapy.runtime.unknown import Survey, UnknownTag, by_store
from koalapy.views.clusters import ClusterReport, LeftOn
from koalapy.views.fields import reason

LoginStateName = Literal["connected", "connecting", "login_required", "unreachable"]
WrapperState = Literal["alive", "silent", "ended", "none"]
_ALIVE_S = 60.0  # since a wrapper's last sign of life: it gives one every 10 s, which NFS may delay


def clusters(reports: Iterable[ClusterReport], added: Collection[str] = ()) -> answers.ClustersAnswer:
    """Answer with these clusters. `added`: those that were added by command."""
    return {"schema": "koala.clusters/1", "clusters": [cluster(each, added) for each in reports]}


def cluster_change(
    name: str, state: Literal["added", "draining", "resumed", "removed"], left: LeftOn, by_command: bool
) -> answers.ClusterChangeAnswer:
    """Answer with the change of a cluster, and with what koalapy has there."""
    return {
        "schema": "koala.cluster/1",
        "cluster": name,
        "state": state,
        "left": {
            "jobs": [*left.living],
            "pending_cancels": left.pending_cancels,
            "collecting": [*left.collecting],
            "naming": [*left.naming],
            "text": str(left) if left else "",
        },
        "added_by_command": by_command,
    }


def reloaded(found: Reloaded, facts: answers.KoaladFacts, done: bool) -> answers.ReloadAnswer:
    """Answer with the changes of a grid file."""
    changed = [
        answers.ChangedKey(cluster=each.cluster, key=each.key, before=each.before, after=each.after)
        for each in found.difference.changed
    ]
    return {
        "schema": "koala.reload/1",
        "grid": facts["grid"],
        "grid_file": facts["grid_file"],
        "done": done,
        "added": [*found.difference.added],
        "removed": [*found.difference.removed],
        "moved": [*found.difference.moved],
        "changed": changed,
        "refused": [*found.refused],
    }


def cluster(report: ClusterReport, added: Collection[str]) -> answers.Cluster:
    """Describe a cluster. Its numbers are None until the first measurement."""
    known, summary, state = report.known, report.summary, report.summary.state
    return {
        "name": summary.name,
        "batch": known.settings.batch,
        "version": known.version or None,
        "connection": report.connection,
        "total": state.total if state else None,
        "ours": state.ours if state else None,
        "scavenged": report.scavenged if state else None,
        "others": state.others if state else None,
        "waiting_local": state.waiting_local if state else None,
        "idle": summary.idle if state else None,
        "committed": summary.committed,
        "unit": state.unit if state else None,
        "walltime_limit_s": state.walltime_limit / SECOND if state and state.walltime_limit is not None else None,
        "age_s": None if report.age is None else round(report.age / SECOND, 3),
        "reason": str(summary.trouble) if summary.trouble else None,
        "foreign_reports": report.foreign.count if report.foreign else 0,
        "draining": known.settings.draining,
        "added_by_command": summary.name in added,
    }


def login(state: LoginState) -> answers.Login:
    """Describe the login on a cluster."""
    question = state.question
    return {
        "cluster": state.cluster,
        "state": cast(LoginStateName, state.state),
        "trying": state.trying,
        "version": state.version,
        "reason": reason(state.reason) if state.reason else None,
        "notices": list(state.notices),
        "question": None
        if question is None
        else {
            "number": state.number,
            "title": question.title,
            "instructions": question.instructions,
            "prompts": [{"text": prompt.text, "echo": prompt.echo} for prompt in question.prompts],
        },
        "may_ask": state.may_ask,
    }


def unknown(surveys: Sequence[Survey]) -> answers.UnknownAnswer:
    """Answer with the tags that this store does not know, and the outcome of the survey of each cluster."""
    return {
        "schema": "koala.unknown/1",
        "tags": [unknown_tag(tag) for survey in surveys for tag in survey.tags],
        "stores": stores(tag for survey in surveys for tag in survey.tags),
        "clusters": [
            {
                "cluster": each.cluster,
                "at": format_instant(each.at),
                "reason": str(each.trouble) if each.trouble else None,
            }
            for each in surveys
        ],
    }


def unknown_tag(found: UnknownTag) -> answers.UnknownTag:
    """Describe such a tag."""
    return {
        "cluster": found.cluster,
        "tag": found.tag,
        "store": found.instance,
        "own": found.own,
        "attempt": str(found.attempt),
        "batch_id": found.batch_id or None,
        "batch_state": found.state or None,
        "directory": found.directory,
        "wrapper": _wrapper(found),
        "heartbeat_age_s": _seconds(found.heartbeat_age_s),
        "age_s": _seconds(found.age_s),
        "may_run": found.may_run,
    }


def stores(tags: Iterable[UnknownTag]) -> list[answers.StoreTags]:
    """Count such tags by their stores."""
    return [
        {
            "store": each.store,
            "own": each.own,
            "clusters": each.clusters,
            "tags": len(each.tags),
            "may_run": each.may_run,
            "oldest_s": _seconds(max(each.ages_s, default=None)),
            "newest_s": _seconds(min(each.ages_s, default=None)),
        }
        for each in by_store(tags)
    ]


def _wrapper(found: UnknownTag) -> WrapperState:
    """Return `silent` for a wrapper without a recent sign of life, `ended` for one with an exit record."""
    if found.ended:
        return "ended"
    if found.heartbeat_age_s is None:
        return "none"
    return "alive" if found.heartbeat_age_s < _ALIVE_S else "silent"


def _seconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def cleaned(cluster: str, tag: str, done: bool) -> answers.CleanAnswer:
    """Answer whether such a tag has been cleaned up."""
    return {"schema": "koala.clean/1", "cluster": cluster, "tag": tag, "state": "cleaned" if done else "cleaning"}
