"""Lists the functions: name, timeout, memory, and permissions."""

from dataclasses import dataclass

from nodeheal.contract import names
from stacks.machine_permissions import (
    GIVE_UP_IN_GROUP,
    LAUNCH_MACHINE,
    REBOOT_MACHINE,
    SEE_LAUNCHES,
    SEE_MACHINES,
    START_MACHINE,
    STOP_MACHINE,
    TERMINATE_MACHINE,
)
from stacks.permission import (
    ANNOUNCE,
    ASK_CLUSTERS,
    ASK_CONTROLLER,
    CHANGE,
    DRAIN_NODE,
    FIND_NODE,
    FORGET,
    KEEP,
    LIST,
    LIST_TASKS,
    MARK_RECORDS,
    PASS_EXECUTION_ROLE,
    QUARANTINE,
    READ_APPROVAL_KEY,
    READ_HEARTBEATS,
    READ_HEARTBEATS_OF_JOB,
    READ_KEYS,
    READ_POLICY,
    REGISTER_DEFINITION,
    RESUME,
    SEE_COMMAND,
    SEE_DEFINITION,
    SEE_EXECUTIONS,
    SEE_HOLDER,
    SEE_INSTANCE_TAGS,
    SEE_MANAGED_NODES,
    SEE_NODE,
    SEE_NODE_TAGS,
    SEE_RECORDS_MARK,
    SEE_TASKS,
    SIGN_UPLOADS,
    START_JOB,
    START_RECOVERY,
    START_TASK,
    STOP_TASK,
    TAG_DEFINITION,
    UNDRAIN_NODE,
    UNTAG_NODE,
    Permission,
    own_log,
    send_command,
    take_messages,
)


@dataclass(frozen=True)
class FunctionSpec:
    """One function."""

    stem: str
    permissions: tuple[Permission, ...] = ()
    state: tuple[Permission, ...] = (KEEP, LIST, FORGET)  # of the table
    timeout_seconds: int = 30  # below the 60 that the state machines give a quick task
    memory_mb: int = 512  # the processor share comes with memory, and a cold start is limited by the processor
    # Between a fault and the resumed job, where a cold start is a second of lost training.
    keep_warm: bool = False
    handler: str = ""  # its module in lambdas, where functions share one; else named like the function
    # Its events wait here while a service does not answer. Without one, rules invoke the function, and Lambda drops an
    # event after three errors: then the deadline of an operation, or the next sweep, finds what the event would have.
    queue: str = ""

    @property
    def every_permission(self) -> tuple[Permission, ...]:
        """Return its own permissions, and those of every function of its kind."""
        queued = (take_messages(self.queue), QUARANTINE) if self.queue else ()
        return (own_log(self.log_group), *self.state, *self._looks, *queued, *self.permissions)

    @property
    def acts_by_records(self) -> bool:
        """Whether it looks first whether the records are whole (lambdas/composition.py)."""
        return KEEP in self.state and self.stem != "notify"

    @property
    def _looks(self) -> tuple[Permission, ...]:
        """Return what that needs, beside what the function has for its own work."""
        return (SEE_RECORDS_MARK,) if self.acts_by_records and READ_KEYS not in self.permissions else ()

    @property
    def module(self) -> str:
        """Return the module of its handler."""
        return f"lambdas.{self.handler or self.stem}"

    @property
    def log_group(self) -> str:
        """Return its log group."""
        return f"/nodeheal/{self.stem}"

    @property
    def class_name(self) -> str:
        """Return the stem as in construct ids and in the state machines' placeholders."""
        return "".join(word.title() for word in self.stem.split("_"))

    @property
    def deployed_name(self) -> str:
        """Return the name in the account."""
        return f"nodeheal-{self.stem.replace('_', '-')}"


ASK_LIVENESS_PROBES = (
    FIND_NODE,
    Permission(
        "see whether the SSM agent of a silent node answers; the call takes no resource",
        ("ssm:DescribeInstanceInformation",),
        ("*",),
    ),
    Permission(
        "see whether the machine under a silent node runs; the call takes no resource",
        ("ec2:DescribeInstanceStatus",),
        ("*",),
    ),
)
# A function that ends a step decides the next one, as decide_next_step does.
_DECIDE = (CHANGE, *ASK_LIVENESS_PROBES, ANNOUNCE, READ_POLICY)
_SEE_UNMANAGED_TASKS = (LIST_TASKS, SEE_TASKS)
_ASK_FOR_CHECKPOINT = send_command(
    "ask a gang for a checkpoint, before it is stopped or on an early warning", "checkpoint-now"
)
_AT_REBOOT = ("reset-gpu", "reboot-node", "find-checkpoint")
_AT_ISOLATION = ("checkpoint-now", "freeze-evidence")

FUNCTIONS = (
    FunctionSpec(
        "ingest",
        (
            CHANGE,
            START_RECOVERY,
            READ_KEYS,
            SEE_INSTANCE_TAGS,
            SEE_NODE_TAGS,
            READ_HEARTBEATS_OF_JOB,
            ANNOUNCE,
            READ_POLICY,
            RESUME,
        ),
        keep_warm=True,
        queue="nodeheal-events",
    ),
    FunctionSpec(
        "wakeup",
        (
            CHANGE,
            READ_KEYS,
            SEE_NODE_TAGS,
            *SEE_MACHINES,
            START_MACHINE,
            SEE_COMMAND,
            *ASK_LIVENESS_PROBES,
            SEE_HOLDER,
            *_SEE_UNMANAGED_TASKS,
            START_RECOVERY,
            READ_POLICY,
            ANNOUNCE,
            RESUME,
            QUARANTINE,
        ),
        keep_warm=True,
    ),
    FunctionSpec("take_signal", (START_RECOVERY, READ_POLICY, RESUME), queue="nodeheal-signals"),
    FunctionSpec(
        "sweep",
        (
            CHANGE,
            *ASK_LIVENESS_PROBES,
            ASK_CLUSTERS,
            SEE_HOLDER,
            SEE_NODE,
            SEE_TASKS,
            LIST_TASKS,
            READ_HEARTBEATS,
            Permission(
                "ask machines for the interval of the policy in their heartbeats, and renew the mark of the records",
                ("dynamodb:UpdateItem",),
                ("{heartbeats}",),
            ),
            START_RECOVERY,
            START_JOB,
            ANNOUNCE,
            READ_POLICY,
            RESUME,
        ),
        timeout_seconds=55,  # after 30 s a run starts with no further pool
        memory_mb=1_024,  # reading the heartbeats of 100,000 nodes takes four seconds of a whole processor
    ),
    FunctionSpec(
        "decide_next_step",
        (
            CHANGE,
            ANNOUNCE,
            READ_POLICY,
            SEE_COMMAND,
            *SEE_MACHINES,
            SEE_LAUNCHES,
            ASK_CLUSTERS,
            *ASK_LIVENESS_PROBES,
        ),
        keep_warm=True,
    ),
    FunctionSpec(
        "isolate_node",
        (
            *SEE_MACHINES,
            *DRAIN_NODE,
            UNTAG_NODE,  # of an idle node that is given back
            SEE_HOLDER,
            *_SEE_UNMANAGED_TASKS,
            *send_command("ask a gang for a checkpoint, and its broken node for evidence", *_AT_ISOLATION),
            STOP_TASK,
            SIGN_UPLOADS,
            *ASK_CONTROLLER,
            *_DECIDE,
            RESUME,
        ),
        timeout_seconds=55,  # a controller is queried twice, and SSM takes seconds for each
        handler="deciding_operation",
        keep_warm=True,
    ),
    FunctionSpec(
        "reboot_node",
        (
            *send_command("reset a GPU, reboot a node, and ask for its job's newest checkpoint", *_AT_REBOOT),
            *SEE_MACHINES,
            FIND_NODE,
            SEE_HOLDER,
            SEE_MANAGED_NODES,
            *ASK_CONTROLLER,
            REBOOT_MACHINE,
            STOP_MACHINE,
            START_MACHINE,
            RESUME,
        ),
        state=(KEEP, LIST),
        timeout_seconds=55,  # a controller is queried once
        keep_warm=True,
        handler="operation",
    ),
    FunctionSpec(
        "run_diagnostics",
        (*send_command("rerun diagnostics", "run-diagnostics"), SEE_COMMAND, *_DECIDE, RESUME),
        state=(KEEP, LIST),
        handler="deciding_operation",
        keep_warm=True,
    ),
    FunctionSpec(
        "freeze_evidence",
        (*send_command("save evidence", "freeze-evidence"), SIGN_UPLOADS, *_DECIDE, RESUME),
        state=(KEEP, LIST),
        handler="deciding_operation",
        keep_warm=True,
    ),
    FunctionSpec(
        "replace_node",
        (
            *SEE_MACHINES,
            *LAUNCH_MACHINE,
            TERMINATE_MACHINE,
            GIVE_UP_IN_GROUP,
            FIND_NODE,
            SEE_HOLDER,
            SEE_MANAGED_NODES,
            *ASK_CONTROLLER,
            READ_POLICY,
            RESUME,
        ),
        timeout_seconds=55,  # a refused launch takes seconds, and there may be several places to try
        handler="operation",
    ),
    FunctionSpec(
        "return_to_service",
        (
            *UNDRAIN_NODE,
            SEE_HOLDER,
            *SEE_MACHINES,
            TERMINATE_MACHINE,
            GIVE_UP_IN_GROUP,
            *ASK_CONTROLLER,
            *_DECIDE,
            RESUME,
        ),
        timeout_seconds=55,  # a controller is queried twice
        keep_warm=True,
    ),
    FunctionSpec("wait_for_news", (*_ASK_FOR_CHECKPOINT, RESUME, ANNOUNCE), state=(KEEP, LIST)),
    FunctionSpec("wait_for_approval", (READ_APPROVAL_KEY, ANNOUNCE, RESUME), state=(KEEP, LIST)),
    FunctionSpec("answer_approval", (READ_APPROVAL_KEY, RESUME), state=(KEEP, LIST)),
    FunctionSpec(
        "stop_gang",
        (*_ASK_FOR_CHECKPOINT, STOP_TASK, SEE_TASKS, LIST_TASKS, READ_POLICY, RESUME),
        state=(KEEP,),
        keep_warm=True,
    ),
    FunctionSpec(
        "find_checkpoint",
        (
            *send_command("ask for a job's newest checkpoint", "find-checkpoint"),
            START_RECOVERY,
            READ_POLICY,
            RESUME,
        ),
        timeout_seconds=55,  # one command a node, and a job may have hundreds
    ),
    FunctionSpec(
        "launch_gang",
        (FIND_NODE, SEE_NODE, *START_TASK, STOP_TASK, SEE_TASKS, READ_POLICY, RESUME),
        state=(KEEP, LIST),
        keep_warm=True,
    ),
    FunctionSpec(
        "end_incident",
        (CHANGE, FIND_NODE, SEE_HOLDER, *START_TASK, SEE_TASKS, ASK_CLUSTERS, ANNOUNCE, READ_POLICY, RESUME),
    ),
    FunctionSpec("choose_nodes", (CHANGE, READ_POLICY, RESUME), state=(KEEP, LIST)),
    FunctionSpec("await_nodes", (READ_POLICY, RESUME), state=(KEEP, LIST)),
    FunctionSpec(
        "check_nodes",
        (
            *send_command("run diagnostics on the nodes of a job", "run-diagnostics", "test-fabric"),
            READ_POLICY,
            RESUME,
        ),
        state=(KEEP,),
        timeout_seconds=55,  # one command a node, and a job may have hundreds
    ),
    FunctionSpec("judge_checks", (START_RECOVERY, READ_POLICY, RESUME)),
    FunctionSpec(
        "launch_job",
        (FIND_NODE, SEE_NODE, *START_TASK, STOP_TASK, SEE_TASKS, READ_POLICY, RESUME),
        state=(KEEP, LIST),
        timeout_seconds=55,  # one task a node, and a job may have hundreds
    ),
    FunctionSpec("watch_gang", (ANNOUNCE, RESUME), state=(KEEP, LIST)),
    FunctionSpec("attribute_failure", (START_RECOVERY, READ_POLICY, ANNOUNCE, RESUME)),
    FunctionSpec("stop_job", (STOP_TASK, SEE_TASKS, LIST_TASKS, RESUME), state=(KEEP, LIST), timeout_seconds=55),
    FunctionSpec("end_job", (CHANGE, ANNOUNCE, RESUME)),
    FunctionSpec(
        "do_act",
        (
            CHANGE,
            FIND_NODE,
            SEE_HOLDER,
            *UNDRAIN_NODE,
            *ASK_CONTROLLER,
            SEE_MANAGED_NODES,
            SEE_INSTANCE_TAGS,
            SEE_NODE_TAGS,
            START_RECOVERY,
            READ_POLICY,
            RESUME,
        ),
        timeout_seconds=55,  # a controller is queried twice
        memory_mb=1_024,  # a person waits for it, and its cold start is limited by the processor
    ),
    FunctionSpec(
        "request_job",
        (
            CHANGE,
            REGISTER_DEFINITION,
            TAG_DEFINITION,
            PASS_EXECUTION_ROLE,
            SEE_DEFINITION,
            START_JOB,
            READ_POLICY,
            RESUME,
        ),
        memory_mb=1_024,
    ),
    FunctionSpec(
        "reconcile_records",
        (
            CHANGE,
            FIND_NODE,
            SEE_NODE,
            SEE_HOLDER,
            *UNDRAIN_NODE,
            *ASK_CONTROLLER,
            SEE_MANAGED_NODES,
            *SEE_MACHINES,
            LIST_TASKS,
            SEE_TASKS,
            STOP_TASK,
            READ_HEARTBEATS,
            MARK_RECORDS,
            *SEE_EXECUTIONS,
            READ_POLICY,
            RESUME,
        ),
        timeout_seconds=55,  # a person waits for it; what is left, the next call goes on with
        memory_mb=1_024,
    ),
    FunctionSpec("validate_policy", state=()),
    FunctionSpec(
        "notify",
        (
            ANNOUNCE,
            Permission("notify the operators, or the owner of a job", ("sns:Publish",), ("{topic}", "{owners_topic}")),
            Permission(
                "see whether an owner has confirmed the subscription, so that otherwise the operators are notified",
                ("sns:ListSubscriptionsByTopic",),
                ("{owners_topic}",),
            ),
        ),
        state=(KEEP, CHANGE),
        queue="nodeheal-notifications",
    ),
)


def publish_to_channels(channels: tuple[str, ...]) -> Permission:
    """Return what notify needs in addition where channels of kind chat are deployed."""
    return Permission(
        "post the notifications that the policy selects for a chat",
        ("sns:Publish",),
        tuple(f"arn:{{partition}}:sns:{{region}}:{{account}}:{names.CHANNEL_TOPIC_PREFIX}{name}" for name in channels),
    )


def pass_instance_roles(instance_role_arns: tuple[str, ...]) -> Permission:
    """Return what replace_node needs in addition where launch templates name an instance profile. The settings name the
    roles.
    """
    return Permission(
        "give a new machine the role of the instance profile that its launch template names",
        ("iam:PassRole",),
        instance_role_arns,
        {"StringEquals": {"iam:PassedToService": ("ec2.amazonaws.com", "ec2.amazonaws.com.cn")}},  # either, in China
    )


def read_image_parameters(image_parameter_arns: tuple[str, ...]) -> Permission:
    """Return what replace_node needs in addition where launch templates name images by the operator's parameters."""
    return Permission(
        "find the image where a template names it by a parameter of the operator's",
        ("ssm:GetParameters",),
        image_parameter_arns,
    )


def pass_task_roles(task_role_arns: tuple[str, ...]) -> Permission:
    """Return what starts of tasks need in addition where they have task roles. The settings name each role."""
    return Permission(
        "give a task the task role that its definition names",
        ("iam:PassRole",),
        task_role_arns,
        {"StringEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}},
    )
