"""Views of a job's submission: what it would do, and what came of it."""

from pydantic import Field, JsonValue

from nodeheal.api.base_view import View
from nodeheal.api.job_views import StandingRow
from nodeheal.api.views import JobListRow
from nodeheal.contract.acts import JobPlacement


class PlannedJob(View):
    """What a submission would do now. `task_definition`: its name, or all of the one that would be registered.

    For screens only: `accelerators` that each task takes, and `in_line`: `in_line_before` in words.
    """

    task_definition: JsonValue
    placement: JobPlacement
    in_line_before: tuple[StandingRow, ...]
    warnings: tuple[str, ...]
    accelerators: int = Field(exclude=True)
    in_line: str = Field(exclude=True)


class SubmittedJob(JobListRow):
    """A job that was submitted now or before. `differs_in`: the settings in which the file differs from it.

    `placement`: where a new one would run now; `owner_confirmed`: whether its owner gets emails; None: it has none.
    For screens only: `in_line`: `in_line_before` in words.
    """

    is_new: bool
    differs_in: tuple[str, ...]
    placement: JobPlacement | None
    in_line_before: tuple[StandingRow, ...]
    owner_confirmed: bool | None
    warnings: tuple[str, ...]
    in_line: str = Field(exclude=True)
    owner_address: str = Field(exclude=True)
