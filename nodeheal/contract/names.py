"""Defines every name that two processes must agree on: buses, detail types, table keys, documents, environment
variables.

Standard library only: the agent, the stacks, the Lambdas and the CLI all import it.
"""

import hashlib

# Events --------------------------------------------------------------------------------------------------------------
BUS = "nodeheal"
AGENT_SOURCE = "nodeheal.agent"
CONTROL_SOURCE = "nodeheal.control"
OPERATOR_SOURCE = "nodeheal.operator"  # of what operators request by hand; nodes may not use this source
OPERATOR_REQUEST = "operator_request"  # the code of such a request, in family host; its sub-code is the action
DRAIN = "DRAIN"  # the sub-code of a request to isolate a node when its job has ended
DIAGNOSE = "DIAGNOSE"  # the sub-code of a request to diagnose a node, and to give it back if it passes
NEEDS_APPROVAL = "needs_approval"  # the label of such a request by somebody who is not known to be an operator
DIAGNOSTICS_LEVEL = "diagnostics_level"  # the label of such a request that says how thoroughly
NEW_NODE = "new_node"  # the code of a new node that has not been diagnosed since its first boot
IDLE_CHECK = "idle_check"  # the code of a free node that has not been diagnosed for long
ROUTINE_CHECKS = frozenset({NEW_NODE, IDLE_CHECK})  # a node is diagnosed though no fault of it is known
INSTANCE_GONE = "instance_gone"  # the code of a machine that was stopped, or is being terminated

NODE_HEALTH_REPORTED = "Node Health Reported"
NODE_BOOTED = "Node Booted"
NODE_HARDWARE_REPORTED = "Node Hardware Reported"
DIAGNOSTICS_FINISHED = "Diagnostics Finished"
EVIDENCE_FROZEN = "Evidence Frozen"
CHECKPOINT_FOUND = "Checkpoint Found"
AGENT_DOCTOR = "Agent Doctor"  # no rule matches it: an agent tests whether the bus accepts its events
INCIDENT_CLOSED = "Incident Closed"
INCIDENT_ESCALATED = "Incident Escalated"
INCIDENT_WAITING = "Incident Waiting"
APPROVAL_REQUESTED = "Approval Requested"
JOB_NEWS = "Job News"  # to the owner of a job
INCIDENT_DIGEST = "Incident Digest"  # one message that summarises those of some hours
CHANNEL_MESSAGE = "Channel Message"  # what EventBridge posts to the webhook of the channel in its detail

# The prefix of `source` of an event that does not come from the node's agent.
OUTSIDE_SOURCES = ("aws.", "nodeheal.")
SWEEP_SOURCE = "nodeheal.sweep"
JOB_SOURCE = "nodeheal.jobs"  # findings of a job's own workflow: how its ranks ended, who failed its preflight
# Findings of the family heartbeat: each says that a heartbeat is missing.
SILENT = "silent"
AGENT_DISCONNECTED = "agent_disconnected"
SILENCES = (SILENT, AGENT_DISCONNECTED)

ECS_TASK_STATE_CHANGE = "ECS Task State Change"
ECS_INSTANCE_STATE_CHANGE = "ECS Container Instance State Change"
ECS_INSTANCE_HEALTH_CHANGE = "ECS Container Instance Health Change"
EC2_STATE_CHANGE = "EC2 Instance State-change Notification"
EC2_SPOT_WARNING = "EC2 Spot Instance Interruption Warning"
EC2_REBALANCE = "EC2 Instance Rebalance Recommendation"
EC2_RESERVATION_WARNING = "EC2 Interruptible Capacity Reservation Instance Interruption Warning"
AUTO_SCALING_TERMINATE = "EC2 Instance-terminate Lifecycle Action"
AWS_HEALTH = "AWS Health Event"
ALARM_STATE_CHANGE = "CloudWatch Alarm State Change"
SSM_INVOCATION_CHANGE = "EC2 Command Invocation Status-change Notification"
GROUP_LAUNCHED = "EC2 Instance Launch Successful"
GROUP_LAUNCH_FAILED = "EC2 Instance Launch Unsuccessful"
MACHINE_STATE_CHANGE = "EC2 Instance State-change Notification"

# SSM -----------------------------------------------------------------------------------------------------------------
DOCUMENT_PREFIX = "nodeheal-"  # and the name of its file in packaging/ssm
INJECT_DOCUMENT = "nodeheal-inject-fault"  # for drills; no function may send it
INJECT_DCGM_DOCUMENT = "nodeheal-inject-dcgm"  # the equivalent in DCGM
INSTALL_DOCUMENT = "nodeheal-install-agent"  # an administrator sends it; no function and no operator may

# The workflow of an incident; its executions are named after their incidents.
RECOVERY_WORKFLOW = "nodeheal-recover-node"
# The workflow of a training job; its executions are named after its submissions.
JOB_WORKFLOW = "nodeheal-run-job"

# Training jobs that nodeheal creates task definitions for
# ---------------------------------------------------------------
JOB_FAMILY_PREFIX = "nodeheal-"  # followed by the job's name
JOB_LOG_GROUP = "/nodeheal/jobs"  # streams: the job's name, the container, the task
# IAM names are shared by all Regions of an account, so they contain the Region.
NODE_ROLE = "nodeheal-node-{region}"  # of hybrid activations and instance profiles
AGENT_POD_ROLE = "nodeheal-agent-pods-{region}"  # of the agent's pods by EKS Pod Identity
QUEUE_ROLE = "nodeheal-queue-{region}"  # of the compute nodes of ParallelCluster
# Whom the access entry of that role makes it in an EKS cluster; charts/nodeheal binds this group.
KUBERNETES_GROUP = "nodeheal:control-plane"
KUBERNETES_NAMESPACE = "nodeheal"  # of the agent, and of the Jobs that run its commands
KUBERNETES_AGENT = "nodeheal-agent"  # its DaemonSet and its service account
KUBERNETES_TAINT = "nodeheal.io/isolated"  # on an isolated Node, with the incident; a kubelet cannot change taints
KUBERNETES_POOL_LABEL = "nodeheal.io/pool"  # on a Node: the agent runs there, and the node is of this pool
CONTROLLER_ROLE = "nodeheal-controllers-{region}"  # assumed to send a command to the controller of a cluster
JOB_EXECUTION_ROLE = "nodeheal-job-execution-{region}"  # used to pull the image and to write the log
JOB_TAG = "nodeheal:job"  # on a task definition: the job that it was created for
# Where the agent writes requests for checkpoints, on the node and in the container; docs/agent.md has the protocol.
CHECKPOINT_REQUESTS = "/run/nodeheal"

# Contained in every line that a drill injects, so that nobody takes it for a real fault.
DRILL_MARK = "nodeheal-drill"
# The environment variable of an evidence command with the fault that was reported of the node, as Base64.
ACCUSED = "NODEHEAL_ACCUSED"

# The tag by which an operator permits nodeheal to act. Destructive permissions are conditioned on it.
MANAGED_TAG = "nodeheal:managed"
MANAGED_TAG_VALUE = "true"
# On a node, with its pool: State Manager installs the agent there, where the setting agent_pools contains that pool.
AGENT_POOL_TAG = "nodeheal:agent-pool"
# On a few nodes of a pool, with its name: a new version is installed there first (setting agent_canaries).
AGENT_CANARY_TAG = "nodeheal:agent-canary"
# The node's rack, as an operator has set it. For people and for AWS queries; nodeheal reads its own record.
RACK_TAG = "nodeheal:rack"
# At the scheduler, on an isolated node: the incident that isolated it. For people; no decision uses it.
ISOLATED_TAG = "nodeheal:isolated-by"
# On the machine of a Slurm controller, with the cluster's name: it runs drain, requeue and resume.
SLURM_CONTROLLER_TAG = "nodeheal:slurm-controller"
# The replacement for which an instance was launched: a repeated call finds the instance of the first one.
LAUNCH_TAG = "nodeheal:launched-for"

# `startedBy` of a task. StartTask and ListTasks accept 36 letters, digits, '-', '/' and '_' (RunTask alone accepts
# 128).
STARTED_BY_PREFIX = "nodeheal"
# The equivalent for an unmanaged task that was stopped for a recovery and started again. It is not a rank, so its mark
# has another prefix.
UNMANAGED_TASK_PREFIX = "nodeheal-guest"
STARTED_BY_CHARACTERS = 36
_JOB_DIGITS = 16  # of the job's digest: leaves ten characters for the number of the run

# Environment of the functions ----------------------------------------------------------------------------------------
ENV_TABLE = "NODEHEAL_TABLE"
ENV_BUS = "NODEHEAL_BUS"
ENV_TOPIC_ARN = "NODEHEAL_TOPIC_ARN"
ENV_OWNERS_TOPIC_ARN = "NODEHEAL_OWNERS_TOPIC_ARN"
ENV_RECOVER_NODE_ARN = "NODEHEAL_RECOVER_NODE_ARN"
ENV_RUN_JOB_ARN = "NODEHEAL_RUN_JOB_ARN"
ENV_QUARANTINE_URL = "NODEHEAL_QUARANTINE_URL"
ENV_APPROVAL_KEY_ARN = "NODEHEAL_APPROVAL_KEY_ARN"  # ARN of the secret that signs approval links
ENV_APPROVAL_URL = "NODEHEAL_APPROVAL_URL"
ENV_EVIDENCE_BUCKET = "NODEHEAL_EVIDENCE_BUCKET"
ENV_RUNBOOKS = "NODEHEAL_RUNBOOKS"  # the base URL of docs/runbooks, for the emails
# Of the roles whose session names AWS sets to machine ids; separated by ",".
ENV_CONTROLLER_ROLE_ARN = "NODEHEAL_CONTROLLER_ROLE_ARN"
ENV_NODE_ROLE_IDS = "NODEHEAL_NODE_ROLE_IDS"
ENV_HYPERPOD_CLUSTERS = "NODEHEAL_HYPERPOD_CLUSTERS"
ENV_CHANNELS = "NODEHEAL_CHANNELS"  # of the deployed channels, as NAME=KIND; separated by ","
ENV_TASK_ROLES = "NODEHEAL_TASK_ROLES"  # ARNs of the task roles that jobs may be given; separated by ","
ENV_POLICY = "NODEHEAL_POLICY"  # ids of application, environment and profile in AppConfig, separated by "/"

# The input of a scheduled ping that keeps a function warm; the handler returns at once.
KEEP_WARM = {"keep_warm": True}

# The error name of an execution whose failure states have already paged, so that the failed-execution rule does not.
ERROR_ALREADY_PAGED = "HumanPaged"

STACK = "nodeheal"  # in CloudFormation

# The environment of a rank
# ----------------------------------------------------------------------------------------------
JOB_VARIABLE = "NODEHEAL_JOB"  # the job's name; read back from the events of its tasks
RUN_VARIABLE = "NODEHEAL_RUN"  # the number of the run
PROGRESS_VARIABLE = "NODEHEAL_PROGRESS_FILE"  # in which local rank 0 shows its steps; docs/agent.md has the protocol
PROGRESS_DIR = "/run/nodeheal/progress"  # where a program shows its steps, on the node and in the container
# Give the agent the checkpoints that it leaves out: from this step on, written before this time.
DISTRUSTED_STEP, DISTRUSTED_UNTIL = "NODEHEAL_DISTRUSTED_STEP", "NODEHEAL_DISTRUSTED_UNTIL"
PROGRESS_OF_RUN = "NODEHEAL_PROGRESS_OF_RUN"  # gives the agent the file in which a finished run reported its steps
TRAINING_ALERT = "training_alert"  # of one that stands still, or whose loss is no number: it is looked at, at once
TRAINING_DIVERGED = "training_diverged"  # of one whose loss is no number, on all of its nodes
TRAINING_SLOWED = "training_slowed"  # of a node that slows its run, and whose own checks measure why
TRAINING_HANG = "training_hang"  # the code of a run that has reported no step for too long, in family host


def document(stem: str) -> str:
    """Return the SSM document that is deployed from packaging/ssm/<stem>.json."""
    return f"{DOCUMENT_PREFIX}{stem}"


def progress_file(job_id: str, run: int, limit_seconds: int | None) -> str:
    """Return the file of a run's local rank 0; its name tells the agent the run, and how long a step may take."""
    ending = "steps" if limit_seconds is None else f"{limit_seconds}.json"
    return f"{PROGRESS_DIR}/{job_id}.{run}.{ending}"


# Of the command and no function: the address of that API, where the stack is not to be asked for it.
ACTS_URL_VARIABLE = "NODEHEAL_ACTS_URL"

# The console that people sign in to, where the stack has one ----------------------------------------------------------
CONSOLE_ROLE = "nodeheal-console-{role}-{region}"  # a person's, in a session that has the name they have signed in with
CONSOLE_URL_VARIABLE = "NODEHEAL_CONSOLE_URL"  # also of functions, for links in messages
CONSOLE_POOL_VARIABLE = "NODEHEAL_CONSOLE_POOL"  # the id of the user pool
CONSOLE_ISSUER_VARIABLE = "NODEHEAL_CONSOLE_ISSUER"  # the address of the user pool, as its tokens have it
CONSOLE_LOGIN_VARIABLE = "NODEHEAL_CONSOLE_LOGIN"  # the address of the pool's managed login
CONSOLE_CLIENT_VARIABLE = "NODEHEAL_CONSOLE_CLIENT"  # the console's client of the pool
CONSOLE_ROLES_VARIABLE = "NODEHEAL_CONSOLE_ROLES"  # the ARN of the roles above, with {role} in it

# The policy document, in AppConfig ------------------------------------------------------------------------------------
POLICY_APPLICATION = "nodeheal"
POLICY_ENVIRONMENT = "live"
POLICY_PROFILE = "recovery-policy"
POLICY_STRATEGY = "nodeheal-at-once"
POLICY_OUTPUT = "PolicyPlace"  # of the stack: ids of application, environment, profile and strategy, separated by "/"
NODE_ROLES_OUTPUT = "NodeRoleIds"  # of the stack: ids of the roles of nodes, separated by ","
EKS_CLUSTERS_OUTPUT = "EksClusters"  # of the stack: names of the clusters in the settings, separated by ","
FUNCTION_GROUPS_OUTPUT = "FunctionSecurityGroupIds"  # of the stack, where functions run in a VPC; separated by ","
ACTS_OUTPUT = "ActsUrl"  # of the stack: the address of the API by which people act
CHANNELS_OUTPUT = "Channels"  # of the stack: as in ENV_CHANNELS
METRICS_NAMESPACE = "nodeheal"
# Of AWS's Neuron node-problem-detector, whose metrics and reasons of conditions nodeheal writes in its place.
NEURON_METRICS_NAMESPACE = "NeuronHealthCheck"
NEURON_ERROR = "NeuronHasError_"  # followed by the Neuron runtime's name of the error
NODE_METRICS_NAMESPACE = "nodeheal/nodes"  # metrics of agents about their own hosts; IAM permits no other namespace
DASHBOARD = "nodeheal-{region}"  # an account has one list of dashboards for all Regions

# Topics --------------------------------------------------------------------------------------------------------------
ALERTS_TOPIC = "nodeheal-alerts"
OWNERS_TOPIC = "nodeheal-job-owners"
# Where nodes publish grave findings when the bus accepts nothing; ingest reads it.
FALLBACK_TOPIC = "nodeheal-node-fallback"
CHANNEL_TOPIC_PREFIX = "nodeheal-channel-"  # followed by the name of a channel that a topic serves
EMAIL_CHANNEL = "email"  # the alerts topic, which every deployment has
CHANNEL_NAME = r"^[a-z][a-z0-9-]{0,31}$"
OWNER_ATTRIBUTE = "owner"  # of a message to a job's owner: the owner's subscription accepts no other message

# The bucket ----------------------------------------------------------------------------------------------------------
# Bucket names are one namespace for everybody: account and Region make this one unique.
EVIDENCE_BUCKET = "nodeheal-evidence-{account}-{region}"
EVIDENCE_PREFIX = "incidents/"
EVIDENCE_TYPE = "application/gzip"


def evidence_key(incident_id: str, turn: int) -> str:
    """Return the key of the evidence that the operation of this turn asks for."""
    return f"{EVIDENCE_PREFIX}{incident_id}/evidence-{turn}.tar.gz"


# The table -----------------------------------------------------------------------------------------------------------
TABLE = "nodeheal"
PARTITION_KEY = "pk"
SORT_KEY = "sk"
INDEX = "by_pool"
INDEX_PARTITION_KEY = "gsi_pk"
INDEX_SORT_KEY = "gsi_sk"
TTL_ATTRIBUTE = "expires_at"

UNENROLLED_PK = "unenrolled"  # index partition of nodes that report and are not enrolled
ACTS_PK = "acts"  # what people have asked for, with their keys; for a day
POOLS_PK = "pools"  # one item for each pool that has ever had a node
PAUSES_PK = "pauses"  # one item for each node and pool that a person has paused; persons write them directly
SWEEP_PK = "sweep"
SWEEP_SK = "place"  # where the next sweep continues
EPOCH_SK = "epoch"  # until when the records are whole, as the sweep renews it
POLICY_PK = "policy"
POLICY_SK = "last_good"
NODE_SK = "node"
INCIDENT_SK = "incident"
JOB_SK = "job"
LEASE_SK = "lease"
HANG_SK = "hang"
POOL_SK = "pool"
ATTEMPTS_PREFIX = "attempts#"
SLOT_PREFIX = "slot#"
OPERATIONS_PREFIX = "op#"
TIMELINE_PREFIX = "t#"
FAULT_PREFIX = "f#"
REPORTS_PREFIX = "reports#"  # how many a node has sent in a minute, or of old events in a day
HARDWARE_SK = "hardware"  # what the node has last reported of its parts
HISTORY_PREFIX = "h#"  # a fault that led to no incident
RUN_PREFIX = "run#"
CHECK_PREFIX = "check#"
FINDING_PREFIX = "finding#"


# The table of heartbeats, apart from the other: a node may write one item there. -------------------------------------
HEARTBEATS_TABLE = "nodeheal-heartbeats"
HEARTBEAT_KEY = "who"  # ${aws:userid} of the node: ROLE-ID:MACHINE-ID; or pod:CLUSTER/POD. IAM enforces it
EPOCH_KEY = "records"  # no node's: the mark outside the table of records
AGENT_POD_KEY = "agent-pod:"  # and a machine: written by the control plane, as the API server says
AGENT_POD = "pod"  # the item of the pod that speaks for the machine
AGENT_POD_BEFORE = "before"  # that of the pod before it, whose last events may still come
HEARTBEAT_AT = "at"  # seconds since the epoch, as are all times here
HEARTBEAT_EVERY = "every"  # seconds
HEARTBEAT_BOOT = "boot"
HEARTBEAT_STEPS = "steps"  # how the jobs there train, as contract/training.py writes it
HEARTBEAT_WANTED = (
    "wanted"  # the interval that the control plane requests; the node reads it in the answer to its write
)
# Each public key of the node is an attribute: this prefix and the key's id. Its value: the key in Base64, and its
# creation time.
HEARTBEAT_KEY_PREFIX = "key_"


def node_pk(node_id: str) -> str:
    """Partition of everything about one node."""
    return f"node#{node_id}"


def incident_pk(incident_id: str) -> str:
    """Partition of one incident and its timeline."""
    return f"incident#{incident_id}"


def pool_pk(pool: str) -> str:
    """Partition of a pool's budget slots; the index partition of its nodes and incidents."""
    return f"pool#{pool}"


def faults_pk(pool: str) -> str:
    """Index partition of a pool's recorded faults, apart from its nodes, which are written often."""
    return f"faults#{pool}"


def job_pk(job_id: str) -> str:
    """Partition of one training job and its runs."""
    return f"job#{job_id}"


def lease_pk(directory: str) -> str:
    """Partition of the lease on one checkpoint directory."""
    return f"lease#{directory}"


def hang_pk(run: str) -> str:
    """Partition of a run's hang."""
    return f"hang#{run}"


def line_pk(line: str) -> str:
    """Index partition of the operations in one queue."""
    return f"line#{line}"


NODES_LINE = "NODES"  # the queue of a pool's jobs for nodes


def pool_line(awaited: str, pool: str) -> str:
    """Return a pool's queue for a slot of its budget, for the reset of its breaker, or for nodes."""
    return f"{awaited}/{pool}"


def new_nodes_line(pool: str) -> str:
    """Return the queue of a pool's new nodes that are to be diagnosed."""
    return f"new/{pool}"


def group_line(group: str) -> str:
    """Return the queue for the next machine of an Auto Scaling group."""
    return f"group/{group}"


def machine_line(machine_id: str) -> str:
    """Return the queue of the replacement for which this machine was launched."""
    return f"machine/{machine_id}"


def isolation_line(scheduler: str, cluster: str) -> str:
    """Return the queue of the isolations in a cluster whose call to its scheduler was throttled."""
    return f"isolate/{scheduler}/{cluster}"


def operation_pk(owner: str) -> str:
    """Partition of the operations of one node, incident or job. No person and no node may write there."""
    return f"{OPERATIONS_PREFIX}{owner}"


def operation_sk(operation_id: str) -> str:
    """Sort key of one operation."""
    return f"op#{operation_id}"


def node_pause_sk(node_id: str) -> str:
    """Sort key of the pause of one node."""
    return f"node#{node_id}"


def pool_pause_sk(pool: str) -> str:
    """Sort key of the pause of one pool."""
    return f"pool#{pool}"


def attempts_sk(group: str) -> str:
    """Sort key of the retry counter of one budget group, under the scope it counts for."""
    return f"{ATTEMPTS_PREFIX}{group}"


def run_sk(number: int) -> str:
    """Sort key of one run of a job; zero-padded so that runs sort in order."""
    return f"{RUN_PREFIX}{number:06d}"


def findings_prefix(number: int) -> str:
    """Return how the sort keys of what is wrong with this run begin."""
    return f"{FINDING_PREFIX}{number:06d}#"


def job_execution(job_id: str, submission: int) -> str:
    """Return the name of run_job's execution for one submission; at most 80 characters, Step Functions' limit."""
    return f"{job_id}-{submission}"


def started_by(job_id: str, run: int) -> str:
    """Return the mark on every task of one run of a job, whatever the length of the job's name."""
    return f"{STARTED_BY_PREFIX}/{hashlib.sha256(job_id.encode()).hexdigest()[:_JOB_DIGITS]}/{run}"


def is_rank(mark: str) -> bool:
    """Whether a task with this mark is a rank that nodeheal started."""
    return mark.startswith(f"{STARTED_BY_PREFIX}/")


def successor_of(task_id: str) -> str:
    """Return the mark on the task that replaces an unmanaged one."""
    return f"{UNMANAGED_TASK_PREFIX}/{task_id.rsplit('/', 1)[-1]}"[:STARTED_BY_CHARACTERS]
