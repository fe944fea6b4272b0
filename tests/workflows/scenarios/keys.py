"""What is found by a name of its own: the question of this turn, this incident's wait, the moment of the proof.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Outcome
from nodeheal.domain.jobs.job import CheckAnswer
from nodeheal.services.jobs.job_nodes import claim
from tests.support.builders import NOW
from tests.support.fake_cluster import BROKEN, PEER, SPARE
from tests.workflows.breaking_world import ACTS
from tests.workflows.scenarios.races import JOB, Moment


def _asks(mine: StepRequest, incident_id: str, decision: object) -> StepRequest:
    return mine.model_copy(update={"incident_id": incident_id, "decision": decision, "task_token": incident_id})


def it_has_failed_a_check_of_an_earlier_submission() -> list[str]:
    it = Moment()
    for name in (BROKEN, PEER, SPARE):
        it.plain.job_notes.note_answer("llama", CheckAnswer("llama-0-0", name, "boot-1", Outcome.FAILED, "said", NOW))
        it.is_written(name, passed_at=None)
    found = it.does(lambda: claim(JOB, it.ports, ACTS))
    return [] if found.nodes else [f"nothing is chosen: {found.why}"]
