"""The leases of the HTTP API: listed and ended."""

from fastapi import FastAPI

from koalapy import answers
from koalapy.api import documents
from koalapy.api.bodies import EndLeaseBody
from koalapy.runtime.leases import Leases


def add_leases(app: FastAPI, leases: Leases) -> None:
    """Add the endpoints of leases."""

    @app.get("/v1/leases")
    def all_leases() -> answers.LeasesAnswer:
        """List the leases that are not over, and the sums of those that are."""
        return documents.leases(leases.all(), leases.neighbours())

    @app.post("/v1/leases/{lease}/end")
    def end_lease(lease: str, body: EndLeaseBody | None = None) -> answers.LeaseAnswer:
        """Begin to end a lease. Refused while jobs are on a borrowed one, unless `force`."""
        found = leases.end(lease, (body or EndLeaseBody()).force)
        return {"schema": "koala.lease/1", "lease": documents.lease(found)}
