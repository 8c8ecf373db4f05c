"""The clusters of the HTTP API: their changes, their logins, and tags on them that the store does not know."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import FastAPI, Query

from koalapy.answers.clusters import (
    AdsAnswer,
    ChangedKey,
    CleanAnswer,
    ClusterChangeAnswer,
    ClustersAnswer,
    Login,
    LoginAnswer,
    LoginsAnswer,
    ReloadAnswer,
    UnknownAnswer,
)
from koalapy.answers.koalad import KoaladFacts
from koalapy.api.bodies import LONGEST_WAIT_S, AnswersBody, CleanBody, ClusterBody, LoginBody, ReloadBody, Timeout
from koalapy.core.remaining import Remaining
from koalapy.runtime.grid_changes import GridChanges, Reloaded
from koalapy.runtime.logins import Logins
from koalapy.runtime.service import Service
from koalapy.runtime.unknown import UnknownTags
from koalapy.runtime.unknown import answer as unknown_answer
from koalapy.views.clusters import cluster_change, clusters_answer
from koalapy.views.matching import ads_answer

Facts = Callable[[], KoaladFacts]


@dataclass(frozen=True, slots=True)
class GridCalls:
    """The calls that change the grid. `reload(check)`: see GridChanges.reload. `batch_systems`: registered names."""

    changes: GridChanges
    reload: Callable[[bool], Reloaded]
    batch_systems: Sequence[str]


def add_clusters(app: FastAPI, service: Service, calls: GridCalls, facts: Facts) -> None:
    """Add the endpoints of clusters."""

    @app.get("/v1/clusters")
    def clusters() -> ClustersAnswer:
        """List what koalad knows of each cluster, in processors."""
        return clusters_answer(service.clusters(), calls.changes.added)

    @app.get("/v1/clusters/ads")
    def ads() -> AdsAnswer:
        """List the attributes of each cluster that requirements and ranks can name."""
        return ads_answer(service.ads())

    @app.post("/v1/reload")
    def reload(body: ReloadBody | None = None) -> ReloadAnswer:
        """Read the grid file again, and do what it changes, all or nothing. Jobs run on."""
        check = body is not None and body.check
        return _reloaded(calls.reload(check), facts(), done=not check)

    _add_changes(app, calls)
    _add_logins(app, service.logins)
    _add_unknown_tags(app, service.unknown)


def _add_changes(app: FastAPI, calls: GridCalls) -> None:
    changes = calls.changes

    @app.post("/v1/clusters")
    def add(body: ClusterBody) -> ClusterChangeAnswer:
        """Add a cluster, which is kept over restarts. It connects in the background."""
        changes.add(body.name, body.values, calls.batch_systems)
        return cluster_change(body.name, "added", Remaining(), True)

    @app.delete("/v1/clusters/{cluster}")
    def remove(cluster: str, force: bool = False) -> ClusterChangeAnswer:
        """Remove a cluster on which koalapy has nothing; with `force`, give up what it has there."""
        by_command = cluster in changes.added
        return cluster_change(cluster, "removed", changes.remove(cluster, force), by_command)

    @app.post("/v1/clusters/{cluster}/drain")
    def drain(cluster: str) -> ClusterChangeAnswer:
        """Place nothing on the cluster any more; what runs there goes on. It is kept over restarts."""
        left = changes.drain(cluster, True)
        return cluster_change(cluster, "draining", left, cluster in changes.added)

    @app.post("/v1/clusters/{cluster}/resume")
    def resume(cluster: str) -> ClusterChangeAnswer:
        """Place jobs on the cluster again."""
        left = changes.drain(cluster, False)
        return cluster_change(cluster, "resumed", left, cluster in changes.added)


def _add_logins(app: FastAPI, logins: Logins) -> None:
    @app.get("/v1/logins")
    def all_logins() -> LoginsAnswer:
        """List the state of the login on each cluster."""
        return _all_logins(logins)

    @app.post("/v1/logins")
    def retry_logins() -> LoginsAnswer:
        """Try the logins that koalad has given up again, without a person to answer questions."""
        logins.begin_all()
        return _all_logins(logins)

    @app.get("/v1/clusters/{cluster}/login")
    def login(cluster: str, version: int = -1, timeout: Timeout = 0) -> LoginAnswer:
        """Return the login's state when it differs from that of `version`, or after `timeout` seconds."""
        return _login(logins.wait(cluster, version, min(timeout, LONGEST_WAIT_S)))

    @app.post("/v1/clusters/{cluster}/login")
    def begin_login(cluster: str, body: LoginBody | None = None) -> LoginAnswer:
        """Log in at once, if the cluster is not connected. The login's questions appear in the answer."""
        logins.of(cluster).begin(body is None or body.present)
        return _login(logins.of(cluster).view())

    @app.post("/v1/clusters/{cluster}/login/answers")
    def answer_login(cluster: str, body: AnswersBody) -> LoginAnswer:
        """Answer the waiting question: each of its prompts, in order."""
        logins.of(cluster).answer(body.number, [each.get_secret_value() for each in body.answers])
        return _login(logins.of(cluster).view())

    @app.delete("/v1/clusters/{cluster}/login")
    def leave_login(cluster: str) -> LoginAnswer:
        """Give up a login that waits for an answer, because the person has gone."""
        logins.of(cluster).leave()
        return _login(logins.of(cluster).view())


def _add_unknown_tags(app: FastAPI, tags: UnknownTags) -> None:
    @app.get("/v1/unknown")
    def unknown(cluster: Annotated[list[str] | None, Query()] = None) -> UnknownAnswer:
        """Survey all clusters, or these, for tags of koalapy that the store does not know."""
        return unknown_answer(tags.look(cluster or ()))

    @app.post("/v1/unknown/{tag}/clean")
    def clean(tag: str, body: CleanBody | None = None, timeout: Timeout = LONGEST_WAIT_S) -> CleanAnswer:
        """Void such a tag, cancel its batch job and, when nothing is left, remove its directory.

        It may be a live job of another store of the same person. A repeated request waits for the same clean-up.
        """
        cluster = tags.place_of(tag, body.cluster if body else None)
        done = tags.clean(cluster, tag, min(timeout, LONGEST_WAIT_S))
        return {"schema": "koala.clean/1", "cluster": cluster, "tag": tag, "state": "cleaned" if done else "cleaning"}


def _all_logins(logins: Logins) -> LoginsAnswer:
    return {"schema": "koala.logins/1", "logins": logins.views()}


def _login(state: Login) -> LoginAnswer:
    return {"schema": "koala.login/1", "login": state}


def _reloaded(found: Reloaded, facts: KoaladFacts, done: bool) -> ReloadAnswer:
    """Answer with the changes of a grid file."""
    changed = [
        ChangedKey(cluster=each.cluster, key=each.key, before=each.before, after=each.after)
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
