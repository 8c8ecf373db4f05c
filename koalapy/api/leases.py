"""The leases of the HTTP API: listed and ended."""

from fastapi import FastAPI

from koalapy.answers import leases as answers
from koalapy.api.bodies import EndLeaseBody
from koalapy.api.koalad import parse_bound
from koalapy.runtime.leases import Leases
from koalapy.views.leases import answer
from koalapy.views.leases import lease as lease_answer


def add_leases(app: FastAPI, leases: Leases) -> None:
    """Add the endpoints of leases."""

    @app.get("/v1/leases")
    def all_leases(ended: bool = False, since: str | None = None) -> answers.LeasesAnswer:
        """List the leases that are not over, and the sums of those that are.

        With `ended`, list those too, as far as they ended after `since` (RFC 3339) and were not pruned.
        """
        found = leases.ended(parse_bound(since)) if ended else []
        return answer(leases.all(), leases.neighbours(), found)

    @app.post("/v1/leases/{lease}/end")
    def end_lease(lease: str, body: EndLeaseBody | None = None) -> answers.LeaseAnswer:
        """Begin to end a lease, a lent one with notice. `force`: at once, also while jobs are on a borrowed one."""
        found = leases.end(lease, (body or EndLeaseBody()).force)
        return {"schema": "koala.lease/1", "lease": lease_answer(found)}
