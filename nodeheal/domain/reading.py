"""Where people read more about an incident: its execution in the console, and the runbook of what it asks for."""

from dataclasses import dataclass

from nodeheal.contract.vocabulary import Escalation

_CONSOLES = {"aws-cn": "console.amazonaws.cn", "aws-us-gov": "console.amazonaws-us-gov.com"}


def console_of(partition: str, region: str) -> str:
    """The address of the AWS console of a Region."""
    return f"https://{region}.{_CONSOLES.get(partition, 'console.aws.amazon.com')}"


def runbook_file(code: Escalation) -> str:
    """The file in docs/runbooks that says what to do about it."""
    return f"{code.value.lower().replace('_', '-')}.md"


@dataclass(frozen=True)
class Reading:
    """What is empty is not known, and then not told."""

    workflow_arn: str = ""  # of recover_node
    runbooks: str = ""  # where docs/runbooks stands: a path, or an address

    def runbook(self, code: Escalation) -> str:
        """Where the runbook is; its file's name, where nobody has said where the files stand."""
        base = self.runbooks.rstrip("/")
        return f"{base}/{runbook_file(code)}" if base else runbook_file(code)

    def execution(self, incident_id: str) -> str:
        """The address of the incident's execution in the Step Functions console; empty: it is not known."""
        if not self.workflow_arn:
            return ""
        _, partition, _, region, *_ = self.workflow_arn.split(":")
        arn = f"{self.workflow_arn.replace(':stateMachine:', ':execution:')}:{incident_id}"
        return f"{console_of(partition, region)}/states/home?region={region}#/v2/executions/details/{arn}"


NOWHERE = Reading()
