"""judge_checks: see nodeheal/services/jobs/judge_checks.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.job_steps import JobRequest
from nodeheal.services.jobs.judge_checks import judge_checks

handler = step(JobRequest, lambda request: judge_checks(request, ports(), policy()))
