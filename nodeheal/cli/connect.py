"""How commands reach the control plane: the operator's own AWS credentials, the table, and one line for what fails."""

import getpass
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from nodeheal.adapters import schedulers
from nodeheal.adapters.aws import account, console, failures, hyperpod, own_ports, policy_reader
from nodeheal.adapters.aws import acts as aws_acts
from nodeheal.adapters.aws import marks as aws_marks
from nodeheal.adapters.aws import owners as aws_owners
from nodeheal.adapters.aws import policy_documents as aws_documents
from nodeheal.adapters.aws import ports as aws_ports
from nodeheal.adapters.aws.calls import client, client_once, code_of
from nodeheal.adapters.kubernetes import access, jobs, manifests, node_words
from nodeheal.adapters.slurm import controller
from nodeheal.api import acts, records_epoch
from nodeheal.cli.say import refuse, say
from nodeheal.cli.settings import ENV_ACCOUNT
from nodeheal.contract import names
from nodeheal.domain import actor
from nodeheal.domain.errors import NodehealError
from nodeheal.domain.policy import policy as policies

if TYPE_CHECKING:
    from nodeheal.contract.acts import Act, ActDone
    from nodeheal.domain.jobs.owner import Owner
    from nodeheal.ports import Ports

Result = TypeVar("Result", bound="ActDone")
Table = Annotated[str, typer.Option(envvar=names.ENV_TABLE, help="the state table of the deployment")]
Why = Annotated[str, typer.Option(help="the reason: it is recorded with your name")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON, for programs")]
FAILED = 1
SHOWN = 20  # pools in a complaint
LONGEST_LOOK_BACK = 3_650 * 86_400  # seconds: nodeheal is younger than that
_TABLE = ContextVar("table", default=names.TABLE)  # the one that was asked for: an error has to name it
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@contextmanager
def clearly() -> Iterator[None]:
    """What goes wrong is said in one line."""
    try:
        yield
    except Exception as error:
        line = failures.in_words(error, _TABLE.get())
        if line is None:
            raise
        say(line, aside=True)
        raise typer.Exit(FAILED) from None


def ports(table: str) -> "Ports":
    """The real world, through the table and with the caller's credentials.

    Raises ValueError where the context in use is for another account.
    """
    _check_account()
    _TABLE.set(table)
    return own_ports.own_ports(table)


def if_allowed(read: Callable[[], str]) -> str:
    """What it reads; empty where IAM does not let this caller."""
    from botocore.exceptions import ClientError

    try:
        return read()
    except ClientError as error:
        if code_of(error) not in account.DENIED:
            raise
        return ""


def is_confirmed(owner: "Owner") -> bool | None:
    """Whether an owner gets emails; None: it cannot be read, which must not hide what was done."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return owners().is_confirmed(owner)
    except (BotoCoreError, ClientError):
        return None


def do(act: "Act", result: type[Result]) -> Result:
    """Have the control plane do it, as the caller whom AWS names, and return its result. Raises as ControlPlane.do.

    Raises ValueError as well where the context in use is for another account, and where the deployed control plane
    answers with another kind of result.
    """
    _check_account()
    done = control_plane().do(act, acts.new_key())
    if not isinstance(done, result):
        raise ValueError(f"the control plane answers {act.kind} with {done.kind}: is it of this version?")
    return done


def control_plane() -> "acts.ControlPlane":
    """What does acts."""
    return aws_acts.deployed_acts()


def _check_account() -> None:
    """With credentials of another account than the context's, nothing is asked and nothing is done."""
    wanted = os.environ.get(ENV_ACCOUNT)
    if not wanted:
        return
    account = client("sts").get_caller_identity()["Account"]
    if account != wanted:
        problem = f"these credentials are for account {account}, and the context is for {wanted}"
        raise ValueError(f"{problem}: see `nodeheal contexts list`")


def policy_copy(table: str) -> "policies.RecoveryPolicy":
    """The copy of the policy in force that the sweep keeps in the table: one read. The default where there is none."""
    return policy_reader.policy_copy(table)


def slurm() -> "controller.SlurmController":
    """The controllers of Slurm clusters. They are asked from several threads, so the default session's clients are made
    here.
    """
    ssm = client("ssm")
    client("sts")
    # No command knows the clusters of the settings: the address of a HyperPod node is not known here.
    machines = hyperpod.HyperPodMachines(client, client_once, ())
    once = partial(own_ports.controllers_once, "ssm")
    return controller.SlurmController(lambda: ssm, once, partial(client, "ec2"), machines, aws_ports.clock)


def kubernetes() -> "jobs.KubernetesJobs":
    """The jobs of EKS clusters."""
    return jobs.KubernetesJobs(_eks_clusters())


def kubernetes_nodes() -> "node_words.KubernetesNodeWords":
    """The nodes of EKS clusters, as these have them."""
    return node_words.KubernetesNodeWords(_eks_clusters())


def kubernetes_manifests() -> "manifests.KubernetesManifests":
    """What creates jobs in EKS clusters."""
    return manifests.KubernetesManifests(_eks_clusters())


def _eks_clusters() -> "access.EksClusters":
    """They are asked from several threads, so the default session's clients are made here."""
    clients = {service: client(service) for service in ("eks", "sts")}
    return access.EksClusters(clients.__getitem__)


def acting_ports(table: str) -> "Ports":
    """The ports of a command that acts. Raises NotAccepted while the table is an older copy of itself."""
    world = ports(table)
    records_epoch.refuse_restored(world)
    return world


def known_pool(pool: str, world: "Ports") -> str:
    """The pool, if some node of it has reported or was enrolled. Raises ValueError, which names the known ones."""
    known = world.fleet_index.pools()
    if pool in known:
        return pool
    if not known:
        raise ValueError(f"no pool {pool}: no node of any pool has reported yet, or was enrolled")
    from difflib import get_close_matches

    alike = get_close_matches(pool, known, n=1)
    perhaps = f"; did you mean {alike[0]}?" if alike else "."
    raise ValueError(f"no pool {pool} is known{perhaps} Known pools: {_some(known)}")


def notes_of_pools(named: Iterable[str]) -> list[str]:
    """A note on those of these pools that are not there. None where the table cannot be read: a note stops nobody."""
    from botocore.exceptions import BotoCoreError, ClientError

    wanted = dict.fromkeys(named)
    if not wanted:
        return []
    try:
        known = ports(os.environ.get(names.ENV_TABLE, names.TABLE)).fleet_index.pools()
    except (BotoCoreError, ClientError, NodehealError):
        return []
    unknown = [pool for pool in wanted if pool not in known]
    if not unknown:
        return []
    hint = f"known: {_some(known)}" if known else "none is known yet"
    what = "no pool {} is known ({}); what the policy says of it applies once a node is enrolled there"
    if len(unknown) > 1:
        what = "pools {} are not known ({}); what the policy says of them applies once nodes are enrolled there"
    return [f"note: {what.format(_some(unknown), hint)}"]


def _some(words: Sequence[str]) -> str:
    more = f", and {len(words) - SHOWN} more" if len(words) > SHOWN else ""
    return f"{', '.join(words[:SHOWN])}{more}"


def marks() -> "aws_marks.AwsMarks":
    """The tags that let nodeheal act."""
    return aws_marks.AwsMarks(client, schedulers.scheduler_marks(client))


def owners() -> "aws_owners.SnsOwners":
    """The subscriptions of job owners, in the account and Region of the caller."""
    sts = client("sts")
    return aws_owners.SnsOwners(
        client("sns"), aws_owners.topic_arn(sts.get_caller_identity()["Arn"], sts.meta.region_name)
    )


def confirmations() -> "aws_owners.SnsSignedConfirmations":
    """Confirms subscriptions to the topics of nodeheal, in the account and Region of the caller."""
    sts = client("sts")
    caller, region = sts.get_caller_identity()["Arn"], sts.meta.region_name
    topics = [aws_owners.topic_arn(caller, region, topic) for topic in (names.ALERTS_TOPIC, names.OWNERS_TOPIC)]
    return aws_owners.SnsSignedConfirmations(client("sns"), topics)


def channels() -> str:
    """The channels of the deployed stack, as it stores them. Raises ValueError where the context in use is for another
    account.
    """
    _check_account()
    return aws_documents.deployed_channels(client("cloudformation"))


def policy_documents() -> "aws_documents.PolicyDocuments":
    """The policy documents of the deployed stack. Raises ValueError where the context in use is for another account."""
    _check_account()
    return aws_documents.PolicyDocuments(client("appconfig"), aws_documents.deployed_place(client("cloudformation")))


def policy() -> "policies.RecoveryPolicy":
    """The policy document that is in force."""
    return policies.parse_policy(policy_documents().in_force().text)


def execution_url(incident_id: str) -> str:
    """Where the console shows the incident's workflow, in the account and Region of the caller; empty: nowhere."""
    return _execution_url(names.RECOVERY_WORKFLOW, incident_id)


def job_execution_url(job_id: str, submission: int) -> str:
    """The same for one submission of a job."""
    return _execution_url(names.JOB_WORKFLOW, names.job_execution(job_id, submission))


def dashboard_url() -> str:
    """Where the console shows nodeheal's dashboard in this Region; empty: nowhere."""
    import boto3

    session = boto3.session.Session()
    region = session.region_name
    if not region or not console.has_console():
        return ""
    name = names.DASHBOARD.format(region=region)
    return console.dashboard_url(session.get_partition_for_region(region), region, name)


def _execution_url(workflow: str, name: str) -> str:
    if not console.has_console():
        return ""
    sts = client("sts")
    return console.execution_url(
        console.execution_arn(sts.get_caller_identity()["Arn"], sts.meta.region_name, workflow, name)
    )


def reason(why: str) -> str:
    """The reason on one line. Refused where it is empty."""
    if not why.strip():
        refuse("--why: say why; it goes on record")
    if why.strip() in ("...", "…"):
        refuse("--why: replace the dots with your reason; it goes on record")
    return " ".join(why.split())


def on_record(why: str) -> str:
    """The reason with who gives it, as AWS names the caller; for what a person does without the control plane.

    Where AWS does not answer, the name of the account on this machine stands: a brake must work.
    """
    given = reason(why)
    return f"{_caller()}: {given}"


def _caller() -> str:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return actor.actor_of(client("sts").get_caller_identity()["Arn"]).name
    except (BotoCoreError, ClientError, ValueError):
        return getpass.getuser()


def seconds_of(text: str, longest: int = LONGEST_LOOK_BACK) -> int:
    """`2h`, `30m`, `1d` or `90s` in seconds; refused where it is none of these, or longer than `longest` seconds."""
    match = re.fullmatch(r"(\d{1,18})([smhd])", text.strip())
    if match is None:
        refuse(f"{text!r} is not a duration; give 90s, 30m, 2h or 1d")
    seconds = int(match[1]) * _UNITS[match[2]]
    if seconds > longest:
        refuse(f"{text!r} is too long; give at most {longest // _UNITS['d']}d")
    return seconds
