"""What every documented answer is made of."""

from pydantic import BaseModel, ConfigDict

INSTANT = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")
