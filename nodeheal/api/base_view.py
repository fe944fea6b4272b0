"""The base of every view. It imports nothing of nodeheal: commands that read files only start with it."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainSerializer

Time = Annotated[datetime, PlainSerializer(lambda at: at.isoformat(timespec="seconds"), when_used="json")]


class View(BaseModel):
    """A value that is shown."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
