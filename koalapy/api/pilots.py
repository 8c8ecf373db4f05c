"""The pilots of the HTTP API: opened, listed and closed."""

from fastapi import FastAPI

from koalapy.answers import pilots as answers
from koalapy.api.bodies import ClosePilotBody, PilotBody
from koalapy.model.counts import counted_as
from koalapy.model.errors import RequestError
from koalapy.model.request import ComponentRequest, PilotOptions
from koalapy.model.units import SECOND, Duration
from koalapy.runtime.pilots import Pilots
from koalapy.views.pilots import PilotView, answer


def add_pilots(app: FastAPI, pilots: Pilots) -> None:
    """Add the endpoints of pilots."""

    @app.get("/v1/pilots")
    def all_pilots(ended: bool = False) -> answers.PilotsAnswer:
        """List the pilots that are not over; with `ended` also the others, unless they are pruned."""
        return {"schema": "koala.pilots/1", "pilots": [answer(each) for each in pilots.all(ended)]}

    @app.post("/v1/pilots")
    def open_pilot(body: PilotBody) -> answers.PilotAnswer:
        """Submit a pilot: a job that holds processors, and is a cluster of its own while it runs."""
        terms = PilotOptions(idle=_duration(body.idle_s), shared=body.shared)
        return _answer(pilots.open(_component(body), terms, body.key, body.isolate))

    @app.post("/v1/pilots/{pilot}/close")
    def close_pilot(pilot: str, body: ClosePilotBody | None = None) -> answers.PilotAnswer:
        """Begin to end a pilot. Refused while jobs are there, unless `drain` or `force`."""
        wanted = body or ClosePilotBody()
        if wanted.drain and wanted.force:
            raise RequestError("bad_options", "`drain` and `force` exclude each other.", "Give one of the two.")
        return _answer(pilots.close(pilot, wanted.drain, wanted.force))


def _answer(found: PilotView) -> answers.PilotAnswer:
    return {"schema": "koala.pilot/1", "pilot": answer(found)}


def _component(body: PilotBody) -> ComponentRequest:
    """Raises RequestError if the processors cannot be divided among the nodes."""
    per_node = None
    if body.nodes is not None:
        per_node, rest = divmod(body.processors, body.nodes)
        if rest or not per_node:
            message = f"{counted_as(body.processors, 'processor')} cannot be divided equally among {body.nodes} nodes."
            raise RequestError("bad_nodes", message, "Ask for a multiple of the nodes.")
    return ComponentRequest(
        processors=body.processors,
        executable="",
        cluster=body.cluster,
        walltime=_duration(body.walltime_s),
        processors_per_node=per_node,
        queue=body.queue,
        account=body.account,
        qos=body.qos,
        constraint=body.constraint,
    )


def _duration(seconds: float) -> Duration:
    return Duration(round(seconds * SECOND))
