"""request_job: what people do with jobs. See nodeheal/services/jobs/request_job.py."""

from lambdas.acting import acting
from lambdas.composition import policy, ports
from nodeheal.contract.acts import ActDone, Actor, JobAct
from nodeheal.contract.vocabulary import ActKind
from nodeheal.services.jobs.request_job import request_job


def _do(act: JobAct, actor: Actor, key: str) -> ActDone:
    return request_job(act, actor, key, ports(), policy())


handler = acting(ActKind.SUBMIT_JOB, ActKind.STOP_JOB, ActKind.RESTART_JOB, do=_do)
