"""An unmanaged task: a task on a node that nodeheal did not start, and that no service would start again."""

from dataclasses import dataclass

from nodeheal.contract import names


@dataclass(frozen=True)
class UnmanagedTask:
    """A task, under the name that people know.

    `may_be_stopped`: its owner allows that. `scheduler_json`: what its scheduler needs to stop it or to start it again,
    in its own form. `is_held`: a scheduler that would start it again by itself must wait for a person. `before`: what
    had become of it before nodeheal came, in words; empty: it is there. `may_be_deleted`: its deadline has passed, and
    the pool lets it be ended past what protects it. `owner_email`: whom its scheduler's object says that it belongs to.
    """

    task_id: str
    name: str
    started_by: str = ""
    may_be_stopped: bool = False
    scheduler_json: str = ""
    is_held: bool = False
    before: str = ""
    may_be_deleted: bool = False
    owner_email: str = ""

    @property
    def mark(self) -> str:
        """The name under which its one successor is started, however often the call is repeated."""
        return names.successor_of(self.task_id)

    @property
    def short_id(self) -> str:
        """The end of the task's id, which is unique by itself."""
        return self.task_id.rsplit("/", 1)[-1]

    def __str__(self) -> str:
        by = f", started by {self.started_by}" if self.started_by else ""
        return f"{self.name} ({self.short_id}{by})"
