"""The answer about what koalapy takes up of disks."""

from typing import Literal

from pydantic import Field

from koalapy.api.schemas.answer import INSTANT, Answer


class Place(Answer):
    """A cluster's shared directory, as far as it is this store's, or koalad's state directory."""

    place: str = Field(description="the cluster's name, or here")
    here: bool = Field(description="koalad's state directory")
    at: str | None = Field(pattern=INSTANT, description="when it was counted; null: it never was")
    bytes: int = Field(description="on disk")
    whole: bool = Field(description="false: there was too much to count, and there are more bytes")
    directories: int = Field(description="of attempts, on a cluster; of jobs whose output is at home, here")
    parts: dict[str, int] = Field(description="bytes: attempts and staged; here: store, output, staged and log")
    reason: str | None = Field(description="why it could not be counted now")


class DiskAnswer(Answer):
    schema_: Literal["koala.disk/1"] = Field(alias="schema")
    places: list[Place]
