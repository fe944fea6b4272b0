"""What a repeated call, a machine that leaves and a line for slots make of what is there already.

Each is one service and one moment, and says what is wrong after it, which is nothing.
"""

from nodeheal.contract.names import pool_line
from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Awaited, NodeState, Outcome, Step, VerbName
from nodeheal.domain.recovery.timeline import decision_entry, result_entry
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.intake.take_signal import take_draft
from nodeheal.services.operators.request_action import taken_by
from nodeheal.services.recovery.queue import in_line_before
from tests.support.acts import requested
from tests.support.builders import NOW, under_way, xid
from tests.support.fake_cluster import BROKEN
from tests.workflows.breaking_world import ACTS
from tests.workflows.scenarios.news import GONE, draft_of
from tests.workflows.scenarios.races import Moment
from tests.workflows.scenarios.turns import opened

# Machines


def something_else_says_that_a_machine_is_gone() -> list[str]:
    """Its group; and only EC2 knows."""
    it = Moment()
    it.does(lambda: take_draft(draft_of(**{**GONE, "code": "group_termination"}), it.ports, ACTS))
    kept = it.plain.nodes.get(BROKEN)
    return [] if kept is not None and kept.state is not NodeState.RETIRED else ["it is retired, and may be there"]


def a_machine_goes_that_was_retired_by_hand() -> list[str]:
    it = Moment()
    it.is_written(state=NodeState.RETIRED, state_reason="ada: too old")
    it.does(lambda: take_draft(draft_of(**GONE), it.ports, ACTS))
    kept = it.plain.nodes.get(BROKEN)
    return [] if kept is not None and kept.state_reason == "ada: too old" else ["why it was retired is forgotten"]


def a_node_is_isolated_while_its_machine_goes() -> list[str]:
    it = Moment("nodes.save", lambda it: it.is_written(state=NodeState.ISOLATED, open_incident="inc"))
    told = it.does(lambda: take_draft(draft_of(**GONE), it.ports, ACTS))
    return [] if told is Ingested.HISTORY else [str(told)]


# Whose turn it is


def _stands(it: Moment, incident_id: str) -> None:
    line = (pool_line(Awaited.BUDGET, "demo"), f"50#{incident_id}")
    under_way(it.plain, VerbName.WAIT, incident_id=incident_id, token=incident_id, line=line)


def _before(other: str | None, decision: Decision | None = None, result: StepResult | None = None) -> list[str]:
    """Who goes before an incident; `decision`, and how it went, is of its turn before."""
    it, mine = opened()
    _stands(it, other or mine.incident_id)
    if decision is not None:
        it.plain.incidents.append(mine.incident_id, decision_entry(0, decision, NOW))
    if result is not None:
        it.plain.incidents.append(mine.incident_id, result_entry(0, result))
    found: list[str] = it.does(lambda: in_line_before(mine.incident_id, "demo", it.ports))
    return found


_IN_LINE = Decision(step=Step.WAIT, reason="it is full", node_id=BROKEN, awaits=Awaited.BUDGET)
_CALLED = StepResult(step=Step.WAIT, node_id=BROKEN, outcome=Outcome.DONE, reason="its turn", finished_at=NOW)


def it_stands_in_line_itself() -> list[str]:
    return [f"{name} waits for itself" for name in _before(None)]


def it_was_not_called_yet() -> list[str]:
    return [] if _before("inc-first", _IN_LINE) == ["inc-first"] else ["it passes who stands before it"]


def it_was_called_by_something_else() -> list[str]:
    news = _IN_LINE.model_copy(update={"awaits": Awaited.SETTLED})
    return [] if _before("inc-first", news, _CALLED) == ["inc-first"] else ["it passes who stands before it"]


# What the sweep and people ask for


def something_is_asked_of_a_node_that_has_just_failed() -> list[str]:
    it = Moment()
    asked = requested(BROKEN, Action.REBOOT, "ada: it smells", it.plain)
    ingest(xid(79), it.plain, ACTS)
    found = taken_by(asked, it.plain)
    return [f"he is told that {found} has taken what it knows nothing of"] if found else []
