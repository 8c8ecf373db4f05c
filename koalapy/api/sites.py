"""This site of the HTTP API: its neighbours, the lines by which sites become neighbours, and its key."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from fastapi import FastAPI, Query

from koalapy import answers
from koalapy.api import documents
from koalapy.api.bodies import JoinBody
from koalapy.model.errors import RequestError
from koalapy.model.neighbour import Relation

if TYPE_CHECKING:
    from koalapy.runtime.sites.changes import SiteChanges

Facts = Callable[[], answers.KoaladFacts]


def add_sites(app: FastAPI, changes: "SiteChanges | None", facts: Facts) -> None:
    """Add the endpoints of neighbouring sites. `changes`: None for a grid that is no site."""

    def own() -> "SiteChanges":
        if changes is None:
            message = f"This grid is no site: {facts()['grid_file']} has no section `site`."
            advice = "Write `site: {name: NAME}` there, run `koala sites init`, and start koalad anew."
            raise RequestError("no_site", message, advice)
        return changes

    @app.get("/v1/sites")
    def sites() -> answers.SitesAnswer:
        """List the neighbours, and the connections that were refused."""
        return documents.sites(own())

    @app.get("/v1/sites/invitation")
    def invitation(neighbour: str, relation: Relation = Relation.SIBLING, url: str | None = None) -> answers.LineAnswer:
        """Make the line with which a site joins this one. `relation`: what it is to this site."""
        return documents.line(own().invitation(neighbour, relation, url))

    @app.post("/v1/sites/neighbours")
    def join(body: JoinBody) -> answers.LineAnswer:
        """Make a site a neighbour by its line, and return the line to answer with. It is kept over restarts."""
        return documents.line(own().join(body.line, body.replace))

    @app.delete("/v1/sites/neighbours/{neighbour}")
    def remove(neighbour: str) -> answers.SitesAnswer:
        """End the link with a neighbour, and forget what is known of it."""
        own().remove(neighbour)
        return documents.sites(own())

    @app.post("/v1/sites/neighbours/{neighbour}/check")
    def check(neighbour: str, size: Annotated[int, Query(ge=1, le=1 << 34)] = 16 << 20) -> answers.SiteCheckAnswer:
        """Send this many bytes to a connected neighbour, and measure the link."""
        return documents.site_check(neighbour, own().links.measure(neighbour, size))

    @app.post("/v1/sites/key")
    def rotate() -> answers.LinesAnswer:
        """Replace this site's key, and return the line that each neighbour has to join then."""
        return documents.lines(own().rotate())
