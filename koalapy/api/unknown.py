"""The part of the HTTP API that is about tags on clusters that this koalad's store does not know."""

from typing import Annotated

from fastapi import FastAPI, Query

from koalapy.api import documents, schemas
from koalapy.api.bodies import LONGEST_WAIT_S, CleanBody, Timeout
from koalapy.api.documents import Document
from koalapy.api.schemas.answer import answering
from koalapy.runtime.unknown import UnknownTags


def add_unknown(app: FastAPI, tags: UnknownTags) -> None:
    @app.get("/v1/unknown", **answering(schemas.UnknownAnswer))
    def unknown(cluster: Annotated[list[str] | None, Query()] = None) -> Document:
        """Tags of koalapy on the clusters, or on these, that this store does not know; the clusters are asked now."""
        return documents.unknown(tags.look(cluster or ()))

    @app.post("/v1/unknown/{tag}/clean", **answering(schemas.CleanAnswer))
    def clean(tag: str, body: CleanBody | None = None, timeout: Timeout = LONGEST_WAIT_S) -> Document:
        """Revoke such a tag, cancel its batch job and, once nothing is left, remove its directory.

        It may be somebody's live job, of another store of the same person. The same again waits for the same.
        """
        cluster = tags.place_of(tag, body.cluster if body else None)
        return documents.cleaned(cluster, tag, tags.clean(cluster, tag, min(timeout, LONGEST_WAIT_S)))
