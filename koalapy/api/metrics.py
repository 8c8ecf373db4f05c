"""Metrics for Prometheus in its text format, taken at the moment of the scrape.

Labels are clusters, neighbours, states and kinds: the number of series depends on the grid file, never on the jobs.
"""

import hmac
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fastapi import FastAPI, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from koalapy import __version__
from koalapy.api.errors import error_answer
from koalapy.api.koalad import Facts
from koalapy.model.errors import Reason
from koalapy.model.states import JobState
from koalapy.model.units import SECOND
from koalapy.model.usage import Kind
from koalapy.runtime.service import Service

if TYPE_CHECKING:
    from koalapy.runtime.sites.changes import SiteChanges

PATH = "/metrics"
_KINDS = ("held", *(kind.value for kind in Kind))
_NO_TOKEN = Reason(
    "no_token", "request", "Metrics need the token of the grid file.", "Send `Authorization: Bearer` and the token."
)
_NOT_HERE = Reason("not_found", "request", f"This port has {PATH} only.", "Use koalad's Unix socket for the rest.")


def add_metrics(app: FastAPI, service: Service, facts: Facts, sites: "SiteChanges | None") -> None:
    """Add the endpoint that Prometheus scrapes. `sites`: None for a grid that is no site."""

    @app.get(PATH, include_in_schema=False)
    def metrics() -> Response:
        """Return the metrics in Prometheus' text format."""
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=registry)
        registry.register(_Collector(service, facts, sites))  # type: ignore[arg-type]  # only `collect` is called
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class MetricsOnly:
    """An app for a TCP port. It serves only the metrics of another app, for requests with the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        if not hmac.compare_digest(given, self._token):
            return await error_answer(_NO_TOKEN, 401)(scope, receive, send)
        if scope["path"] != PATH or scope["method"] != "GET":
            return await error_answer(_NOT_HERE, 404)(scope, receive, send)
        plain = {**scope, "headers": [(name, value) for name, value in scope["headers"] if name == b"host"]}
        await self._app(plain, receive, send)


class _Collector:
    """The metrics of one scrape. Each family has all its possible series from the start, 0 without a value."""

    def __init__(self, service: Service, facts: Facts, sites: "SiteChanges | None") -> None:
        self._service, self._facts, self._sites = service, facts, sites

    def collect(self) -> Iterable[object]:
        yield from self._koalad()
        yield from self._jobs()
        yield from self._clusters()
        yield from self._usage()
        yield from self._neighbours()

    def _koalad(self) -> Iterable[object]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        facts = self._facts()
        info = GaugeMetricFamily(
            "koala_info", "The version of koalad and its grid; always 1.", labels=("version", "grid")
        )
        info.add_metric([__version__, facts["grid"]], 1)
        yield info
        failing = self._service.trouble() is not None
        yield GaugeMetricFamily("koala_store_failing", "Whether nothing new can be recorded.", value=float(failing))
        commits = CounterMetricFamily("koala_commits", "Commits to the store since koalad started.")
        commits.add_metric([], self._service.counted().commits)
        yield commits

    def _jobs(self) -> Iterable[object]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        load, counted = self._service.load(), self._service.counted()
        jobs = GaugeMetricFamily("koala_jobs", "Jobs that have not ended, by state.", labels=("state",))
        sweeps = GaugeMetricFamily("koala_sweeps", "Sweeps that have not ended, by state.", labels=("state",))
        ended = CounterMetricFamily("koala_jobs_ended", "Jobs and sweeps that ended, by state.", labels=("state",))
        for state in JobState:
            if state.final:
                ended.add_metric([state.value], counted.jobs.get(state.value, 0))
            else:
                jobs.add_metric([state.value], load.jobs.get(state, 0))
                sweeps.add_metric([state.value], load.sweeps.get(state, 0))
        parameters = CounterMetricFamily(
            "koala_parameters_ended", "Parameters of sweeps that were recorded, by how they ended.", labels=("outcome",)
        )
        for outcome in ("ok", "failed"):
            parameters.add_metric([outcome], counted.parameters.get(outcome, 0))
        vacated = CounterMetricFamily("koala_jobs_vacated", "Jobs that were vacated for one of higher priority.")
        vacated.add_metric([], counted.vacated)
        suspended = CounterMetricFamily("koala_jobs_suspended", "Jobs that were suspended for one of higher priority.")
        suspended.add_metric([], counted.suspended)
        revoked = CounterMetricFamily(
            "koala_leases_revoked", "Leases that were taken back for jobs of this site's people."
        )
        revoked.add_metric([], counted.revoked)
        yield from (jobs, sweeps, ended, parameters, vacated, suspended, revoked)
        yield GaugeMetricFamily(
            "koala_longest_wait_seconds",
            "For how long the job that waits longest has waited; 0 if none waits.",
            value=load.longest_wait / SECOND,
        )

    def _clusters(self) -> Iterable[object]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        of_cluster = ("cluster",)
        connected = GaugeMetricFamily("koala_cluster_connected", "Whether koalad is connected.", labels=of_cluster)
        usable = GaugeMetricFamily("koala_cluster_usable", "Whether jobs can be placed on it.", labels=of_cluster)
        capacity = GaugeMetricFamily("koala_cluster_capacity_processors", "All its processors.", labels=of_cluster)
        used = GaugeMetricFamily(
            "koala_cluster_processors",
            "Processors by who has them, in the last measurement: idle, others, ours, and of ours scavenged ones.",
            labels=("cluster", "state"),
        )
        waiting = GaugeMetricFamily("koala_cluster_waiting_jobs", "Jobs of others that wait there.", labels=of_cluster)
        age = GaugeMetricFamily(
            "koala_cluster_measurement_age_seconds", "The age of the last measurement.", labels=of_cluster
        )
        pending_cancels = GaugeMetricFamily(
            "koala_pending_cancels", "Batch jobs still to be cancelled.", labels=of_cluster
        )
        held = GaugeMetricFamily(
            "koala_held_processors", "Processors of components that wait at their barriers.", labels=of_cluster
        )
        candidates = GaugeMetricFamily(
            "koala_candidates", "Batch jobs that wait beside another of their component.", labels=of_cluster
        )
        won = CounterMetricFamily(
            "koala_races_won", "Components that started there while they waited elsewhere too.", labels=of_cluster
        )
        waits, wins = self._service.load().held, self._service.counted().won
        cancelled_on = [each.cluster for each in self._service.pending_cancels()]
        for each in self._service.clusters():
            name, state = [each.summary.name], each.known.state  # the view counts processors of sweeps as idle too
            connected.add_metric(name, float(each.known.connected))
            usable.add_metric(name, float(each.summary.trouble is None))
            pending_cancels.add_metric(name, cancelled_on.count(each.summary.name))
            held.add_metric(name, waits.get(each.summary.name, 0))
            candidates.add_metric(name, each.candidates)
            won.add_metric(name, wins.get(each.summary.name, 0))
            if state is None:
                continue
            capacity.add_metric(name, state.total)
            waiting.add_metric(name, state.waiting_local)
            age.add_metric(name, (each.age or 0) / SECOND)
            shares = {"idle": state.idle, "others": state.others, "ours": state.ours, "scavenged": each.scavenged}
            for what, processors in shares.items():
                used.add_metric([*name, what], processors)
        yield from (connected, usable, capacity, used, waiting, age, pending_cancels, held, candidates, won)

    def _usage(self) -> Iterable[object]:
        from prometheus_client.core import CounterMetricFamily

        counted = self._service.counted()
        seconds = CounterMetricFamily(
            "koala_processor_seconds",
            "Processor time of attempts that ended, by cluster and kind: held, run, lost or scavenged.",
            labels=("cluster", "kind"),
        )
        attempts = CounterMetricFamily(
            "koala_attempts_ended", "Attempts that ended, by cluster and kind.", labels=("cluster", "kind")
        )
        for each in self._service.clusters():
            for kind in _KINDS:
                key = (each.summary.name, kind)
                seconds.add_metric(list(key), counted.processor_s.get(key, 0.0))
                if kind != "held":
                    attempts.add_metric(list(key), counted.attempts.get(key, 0))
        yield from (seconds, attempts)

    def _neighbours(self) -> Iterable[object]:
        """Nothing for a grid that is no site."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        if self._sites is None:
            return
        connected = GaugeMetricFamily(
            "koala_neighbour_connected", "Whether koalad is connected with it.", labels=("neighbour",)
        )
        messages = CounterMetricFamily(
            "koala_neighbour_messages",
            "Messages to and from a neighbour, without those that were sent again: sent or received.",
            labels=("neighbour", "direction"),
        )
        leased = GaugeMetricFamily(
            "koala_leased_processors", "Processors of leases that are bound.", labels=("neighbour", "direction")
        )
        charged = CounterMetricFamily(
            "koala_leased_processor_seconds",
            "Processor time of leases that have ended, of all times: lent or borrowed.",
            labels=("neighbour", "direction"),
        )
        for each in self._sites.links.states():
            connected.add_metric([each.name], float(each.status.state == "connected"))
            messages.add_metric([each.name, "sent"], each.sent)
            messages.add_metric([each.name, "received"], each.received)
            lent, borrowed = (each.record.lent, each.record.borrowed) if each.record else (0, 0)
            for direction, bound, charge in (("lent", each.lent, lent), ("borrowed", each.borrowed, borrowed)):
                leased.add_metric([each.name, direction], bound)
                charged.add_metric([each.name, direction], charge / SECOND)
        yield from (connected, messages, leased, charged)
