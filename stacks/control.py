"""Creates what acts in the stack: the functions, the workflows, the rules between them, and the SSM documents."""

import json
from typing import cast

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_ssm as ssm
from aws_cdk import aws_stepfunctions as sfn

from nodeheal.contract import names
from nodeheal.contract.vocabulary import Escalation
from nodeheal.domain.review.console_links import ConsoleLinks
from stacks.acts_api import ActsApi
from stacks.agent_release import DOCUMENT as INSTALL
from stacks.agent_release import AgentRelease
from stacks.alarms import Parts, build_alarms
from stacks.approval_api import ApprovalApi
from stacks.bundling import CONSOLE_BUNDLE, code_asset
from stacks.channels import build_channels, chats_of, deployed_channels
from stacks.console import SPEC as CONSOLE
from stacks.console import Around, Console
from stacks.dashboard import build_dashboard, build_nodes_dashboard
from stacks.functions import (
    FUNCTIONS,
    FunctionSpec,
    pass_instance_roles,
    pass_task_roles,
    publish_to_channels,
    read_image_parameters,
)
from stacks.job_output import RETENTION
from stacks.machine_permissions import on_hyperpod
from stacks.nag import accept, accept_wildcards
from stacks.operator import OperatorPolicy
from stacks.permission import (
    ASK_CLUSTERS,
    CLUSTER,
    PASS_EXECUTION_ROLE,
    READ_POLICY,
    REGISTER_DEFINITION,
    Permission,
    in_vpc,
    on_kubernetes,
)
from stacks.policy_store import VALIDATOR, PolicyStore
from stacks.rules import BrokenWorkflow, connect_routes, keep_warm, page_on_broken_workflow, sweep_regularly
from stacks.settings import REPOSITORY, ConsoleSetting, Settings
from stacks.state import KEPT, QUEUED, State, sent_by_rules
from stacks.workflows import JOB, JOB_PERMISSIONS, PARENT, PARENT_PERMISSIONS, Workflow, build_workflow

# Every command of packaging/ssm, but those that State Manager sends: agent_release.py deploys them.
DOCUMENTS = tuple(sorted(file.stem for file in INSTALL.parent.glob("*.json") if file != INSTALL))
EVENTS_A_BATCH = 10
# A new fault takes about six calls. At 50 ms each, as the simulation assumes, a batch of ten takes 3 s, and forty
# batches at once process 133 faults a second: those of 750 nodes within 6 s. A node that reports without end uses no
# more than these of the account's 1,000 concurrent executions.
INGESTS_AT_ONCE = 40
AT_ONCE = {"ingest": INGESTS_AT_ONCE, "take_signal": 10, "notify": 10}
ARCHITECTURES = {"arm64": lambda_.Architecture.ARM_64, "x86_64": lambda_.Architecture.X86_64}


class Control:
    """Everything that acts on the state, and the policy document that permits it."""

    def __init__(self, stack: cdk.Stack, settings: Settings, state: State) -> None:
        self._stack = stack
        self._settings = settings
        self._state = state
        self._keep_logs = RETENTION[settings.log_retention_days]
        self._undelivered = self._undelivered_queue()
        self._places = self._deployed_places()
        self._code = code_asset(settings)
        # The validator comes first: AppConfig requires it to exist before the profile that names it.
        validator = self._function(next(spec for spec in FUNCTIONS if spec.stem == VALIDATOR))
        self.policy = PolicyStore(self._stack, validator, settings)
        self._places |= {"policy": self.policy.resource, "policy_application": self.policy.application.ref}
        self.functions = {VALIDATOR: validator}
        self.functions |= {spec.stem: self._function(spec) for spec in FUNCTIONS if spec.stem != VALIDATOR}
        self.workflows = self._workflows()
        self._feed()
        approval = ApprovalApi(self._stack, self.functions["answer_approval"], self._keep_logs)
        self.functions["wait_for_approval"].add_environment(names.ENV_APPROVAL_URL, approval.url)
        self.acts = ActsApi(self._stack, self.functions, self._keep_logs)
        self._places["acts_api"] = self.acts.api_id
        self._rules()
        parts = self._watched_parts()
        build_dashboard(self._stack, parts, build_alarms(self._stack, parts, state.topic))
        if settings.node_dashboard:
            build_nodes_dashboard(self._stack)
        for stem in DOCUMENTS:
            self._document(stem)
        self.agent_release = AgentRelease(self._stack, settings, state.node_roles, self.functions["ingest"])
        self.operators = OperatorPolicy(self._stack, self._places)
        self.console = self._console(settings.console) if settings.console is not None else None

    def outputs(self) -> dict[str, str]:
        """Return the stack's outputs for tools, by name."""
        return {
            "RecoverNodeArn": self.workflows[PARENT].state_machine_arn,
            "RunJobArn": self.workflows[JOB].state_machine_arn,
            names.POLICY_OUTPUT: self.policy.place,
            names.CHANNELS_OUTPUT: deployed_channels(self._settings),
            "UndeliveredUrl": self._undelivered.queue_url,
            names.ACTS_OUTPUT: self.acts.url,
            **({names.FUNCTION_GROUPS_OUTPUT: ",".join(vpc.security_groups)} if (vpc := self._settings.vpc) else {}),
            **self.operators.outputs(),
            **(self.console.outputs() if self.console is not None else {}),
            **self.agent_release.outputs(),
        }

    def _console(self, setting: ConsoleSetting) -> Console:
        around = Around(
            code=code_asset(self._settings, CONSOLE_BUNDLE),
            architecture=ARCHITECTURES[self._settings.architecture],
            table=self._state.table.table_name,
            acts_url=self.acts.url,
            policies=self.operators.by_name,
            places=self._places,
            keep_logs=self._keep_logs,
        )
        console = Console(self._stack, setting, around)
        for function in self.functions.values():
            function.add_environment(names.CONSOLE_URL_VARIABLE, console.url)
        return console

    def _deployed_places(self) -> dict[str, str]:
        """Return the value of each {place} in a permission."""
        state = self._state
        return {
            "partition": cdk.Aws.PARTITION,
            "region": cdk.Aws.REGION,
            "account": cdk.Aws.ACCOUNT_ID,
            "cluster": self._settings.cluster,
            "table": state.table.table_arn,
            "heartbeats": state.heartbeats.table_arn,
            "bus": state.bus.event_bus_arn,
            "topic": state.topic.topic_arn,
            "owners_topic": state.owners_topic.topic_arn,
            "quarantine": state.quarantine.queue_arn,
            "approval_key": state.approval_key_arn,
            # Built from names, not by reference: the workflow refers to its functions, and one of them starts it.
            "recover_node": _spelled(PARENT),
            "run_job": _spelled(JOB),
        }

    def _function(self, spec: FunctionSpec) -> lambda_.Function:
        log_group = logs.LogGroup(
            self._stack,
            f"{spec.class_name}Log",
            log_group_name=spec.log_group,
            retention=self._keep_logs,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        permissions = self._permissions(spec)
        vpc = self._settings.vpc if ASK_CLUSTERS in permissions else None
        if vpc is not None:
            permissions = (*permissions, *in_vpc(spec.deployed_name))
        function = lambda_.Function(
            self._stack,
            f"{spec.class_name}Function",
            function_name=spec.deployed_name,
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=ARCHITECTURES[self._settings.architecture],
            code=self._code,
            handler=f"{spec.module}.handler",
            role=self._role(spec, permissions),
            log_group=log_group,
            timeout=cdk.Duration.seconds(spec.timeout_seconds),
            memory_size=spec.memory_mb,
            environment=self._environment(spec),
        )
        if vpc is not None:  # by ids: the CDK would look a VPC up in the account
            resource = cast("lambda_.CfnFunction", function.node.default_child)
            resource.vpc_config = lambda_.CfnFunction.VpcConfigProperty(
                subnet_ids=list(vpc.subnets), security_group_ids=list(vpc.security_groups)
            )
        accept(
            function, "AwsSolutions-L1", "3.13 is the runtime that the bundle is built for; all functions move at once"
        )
        return function

    def _permissions(self, spec: FunctionSpec) -> tuple[Permission, ...]:
        permissions = spec.every_permission
        if PASS_EXECUTION_ROLE in permissions and self._settings.task_role_arns:
            permissions = (*permissions, pass_task_roles(self._settings.task_role_arns))
        if spec.stem == "notify" and (chats := chats_of(self._settings)):
            permissions = (*permissions, publish_to_channels(chats))
        if spec.stem == "replace_node" and self._settings.instance_role_arns:
            permissions = (*permissions, pass_instance_roles(self._settings.instance_role_arns))
        if spec.stem == "replace_node" and self._settings.image_parameter_arns:
            permissions = (*permissions, read_image_parameters(self._settings.image_parameter_arns))
        permissions = (*permissions, *on_hyperpod(permissions, self._settings.hyperpod_clusters))
        return (
            *permissions,
            *on_kubernetes(permissions, self._settings.eks_clusters, self._settings.pod_identity_clusters),
        )

    def _role(self, spec: FunctionSpec, permissions: tuple[Permission, ...]) -> iam.Role:
        role = iam.Role(
            self._stack,
            f"{spec.class_name}Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            inline_policies={"may": iam.PolicyDocument(statements=[p.statement(self._places) for p in permissions])},
        )
        accept_wildcards(role, permissions, self._places)
        return role

    def _environment(self, spec: FunctionSpec) -> dict[str, str]:
        """Return the functions' environment. It is the same for all, since a name grants nothing; only functions that
        may read the policy get its ids, and only the one that registers task definitions gets the task roles of jobs.
        """
        policy = {names.ENV_POLICY: self.policy.ids} if READ_POLICY in spec.permissions else {}
        task_roles = {names.ENV_TASK_ROLES: ",".join(self._settings.task_role_arns)}
        return {
            **policy,
            **(task_roles if REGISTER_DEFINITION in spec.permissions else {}),
            names.ENV_TABLE: self._state.table.table_name,
            names.ENV_BUS: self._state.bus.event_bus_name,
            names.ENV_TOPIC_ARN: self._state.topic.topic_arn,
            names.ENV_OWNERS_TOPIC_ARN: self._state.owners_topic.topic_arn,
            names.ENV_RECOVER_NODE_ARN: self._places["recover_node"],
            names.ENV_RUN_JOB_ARN: self._places["run_job"],
            names.ENV_QUARANTINE_URL: self._state.quarantine.queue_url,
            names.ENV_EVIDENCE_BUCKET: self._state.evidence.bucket_name,
            names.ENV_APPROVAL_KEY_ARN: self._state.approval_key_arn,
            names.ENV_CHANNELS: deployed_channels(self._settings),
            names.ENV_RUNBOOKS: self._settings.runbook_base_url,
            names.ENV_CONTROLLER_ROLE_ARN: self._state.controller_role.role_arn,
            names.ENV_NODE_ROLE_IDS: self._state.node_role_ids,
            names.ENV_HYPERPOD_CLUSTERS: ",".join(self._settings.hyperpod_clusters),
            "POWERTOOLS_SERVICE_NAME": spec.stem,
        }

    def _workflows(self) -> dict[str, sfn.StateMachine]:
        return {
            PARENT: self._workflow(Workflow(PARENT), PARENT_PERMISSIONS),
            JOB: self._workflow(Workflow(JOB), JOB_PERMISSIONS),
        }

    def _workflow(self, workflow: Workflow, permissions: tuple[Permission, ...]) -> sfn.StateMachine:
        """Create a state machine that may invoke exactly the functions in its file."""
        functions = {f"{spec.class_name}Function": self.functions[spec.stem].function_arn for spec in FUNCTIONS}
        names_of = {"Partition": cdk.Aws.PARTITION, "Table": self._state.table.table_name}
        names_of |= {"Topic": self._state.topic.topic_arn}
        invoked = [arn for name, arn in functions.items() if name in workflow.placeholders()]
        statements = [iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=invoked)]
        statements += [permission.statement(self._places) for permission in permissions]
        machine = build_workflow(self._stack, workflow, {**names_of, **functions}, statements, self._keep_logs)
        accept_wildcards(machine.role, permissions, self._places)
        return machine

    def _feed(self) -> None:
        # Not SqsEventSource: it would add permissions that the table of functions already grants with a reason.
        for stem, queue in self._state.queues.items():
            lambda_.EventSourceMapping(
                self._stack,
                "IngestFeed" if stem == "ingest" else f"{QUEUED[stem].class_name}Feed",
                target=self.functions[stem],
                event_source_arn=queue.queue_arn,
                batch_size=EVENTS_A_BATCH,
                report_batch_item_failures=True,
                max_concurrency=AT_ONCE[stem],
            )

    def _undelivered_queue(self) -> sqs.Queue:
        """Create the queue of events that reached no function."""
        dead = sqs.Queue(
            self._stack,
            "UndeliveredEvents",
            queue_name="nodeheal-undelivered-events",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=KEPT,
        )
        dead.add_to_resource_policy(sent_by_rules(dead))
        accept(dead, "AwsSolutions-SQS3", "it is a dead-letter queue")
        return dead

    def _rules(self) -> None:
        # By its ARN: the CDK does not change the policy of such a queue.
        dead = sqs.Queue.from_queue_arn(self._stack, "UndeliveredTarget", self._undelivered.queue_arn)
        queues: dict[str, sqs.IQueue] = {
            stem: sqs.Queue.from_queue_arn(self._stack, f"{QUEUED[stem].class_name}Target", queue.queue_arn)
            for stem, queue in self._state.queues.items()
        }
        connect_routes(self._stack, self.functions, queues, self._state.bus, dead, CLUSTER.format_map(self._places))
        build_channels(self._stack, self._settings, self._state.bus, dead)
        keep_warm(self._stack, self.functions, dead)
        sweep_regularly(self._stack, self.functions["sweep"], dead)
        console_links = ConsoleLinks(runbooks=self._settings.runbook_base_url)
        broken = (
            BrokenWorkflow(
                "RecoveryBroke",
                "a recovery",
                self.workflows[PARENT].state_machine_arn,
                "The node may be out of service and its job stopped.",
                console_links.runbook(Escalation.RECOVERY_BROKE),
            ),
            BrokenWorkflow(
                "JobBroke",
                "the workflow of a job",
                self.workflows[JOB].state_machine_arn,
                "Nodes are still healed, and the job may still run, but it is not watched.",
                console_links.runbook(Escalation.JOB_BROKE),
            ),
        )
        for workflow in broken:
            page_on_broken_workflow(self._stack, workflow, self._state.topic, dead)

    def _watched_parts(self) -> Parts:
        state = self._state
        of_console = {CONSOLE.stem: CONSOLE.deployed_name} if self._settings.console is not None else {}
        return Parts(
            functions={stem: function.function_name for stem, function in self.functions.items()} | of_console,
            queues={stem: queue.queue_name for stem, queue in state.queues.items()},
            dead_queues={"Events": state.event_dlq.queue_name, "Undelivered": self._undelivered.queue_name},
            quarantine=state.quarantine.queue_name,
            recovery_arn=self.workflows[PARENT].state_machine_arn,
        )

    def _document(self, stem: str) -> None:
        content = json.loads((REPOSITORY / "packaging" / "ssm" / f"{stem}.json").read_text(encoding="utf-8"))
        ssm.CfnDocument(
            self._stack,
            "".join(word.title() for word in stem.split("-")) + "Document",
            name=names.document(stem),
            document_type="Command",
            document_format="JSON",
            content=content,
            update_method="NewVersion",
            target_type="/",
        )


def _spelled(stem: str) -> str:
    """Return the ARN of a workflow, without referring to it."""
    name = Workflow(stem).deployed_name
    return f"arn:{cdk.Aws.PARTITION}:states:{cdk.Aws.REGION}:{cdk.Aws.ACCOUNT_ID}:stateMachine:{name}"
