"""Steps that are operations and need more than `run_step`: two halves of a restart, a job's own steps, a question."""

from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.steps import StepRequest
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.approval_links import Links
from nodeheal.operations import approve, check_node, network_test
from nodeheal.operations import await_nodes as nodes_wait
from nodeheal.operations import launch_gang as gang_launch
from nodeheal.operations import launch_job as job_launch
from nodeheal.operations import stop_gang as gang_stop
from nodeheal.operations import stop_job as job_stop
from nodeheal.operations import watch_gang as gang_watch
from nodeheal.operations.engine import begin
from nodeheal.operations.handler import VerbContext
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_steps import job_of_request


def stop_gang(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    """Ask all ranks to end, each with its own grace. The workflow resumes when all have stopped."""
    begin(gang_stop.plan(request, ports), VerbContext(ports, policy))


def launch_gang(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    """Start the job's next run. The workflow resumes when all ranks run."""
    begin(gang_launch.plan(request, ports), VerbContext(ports, policy))


def stop_job(request: JobRequest, ports: Ports) -> None:
    """Stop what still runs of the job. Its workflow resumes when all ranks have stopped."""
    job_of_request(request, ports)  # raises Superseded for a submission that is not the newest
    begin(job_stop.plan(request, ports), VerbContext(ports))


def launch_job(request: JobRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    """Start every rank, or none. The job's workflow resumes when all run."""
    job_of_request(request, ports)
    begin(job_launch.plan(request, ports), VerbContext(ports, policy))


def await_nodes(request: JobRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    """Stand in the pool's line. The job's workflow resumes when a node may have become free."""
    job_of_request(request, ports)
    begin(nodes_wait.plan(request, ports), VerbContext(ports, policy))


def watch_gang(request: JobRequest, ports: Ports) -> None:
    """Watch the job, from run to run. Its workflow resumes when it has ended, or no incident will restart it."""
    job_of_request(request, ports)
    begin(gang_watch.plan(request, ports), VerbContext(ports))


def check_nodes(request: JobRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    """Have the nodes of a gang run diagnostics, or test the network between them. The last answer resumes the job."""
    ask_all = network_test.ask_all if request.is_of_pairs else check_node.ask_all
    ask_all(request, job_of_request(request, ports), VerbContext(ports, policy))


def wait_for_approval(request: StepRequest, ports: Ports, links: Links) -> None:
    """Ask a human. The answer resumes the workflow: DONE for yes, REFUSED for no."""
    begin(approve.plan(request, ports), VerbContext(ports, given_links=links))
