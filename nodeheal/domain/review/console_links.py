"""Where people read more about an incident: its execution in the console, and the runbook of what it asks for."""

from dataclasses import dataclass

from nodeheal.contract.vocabulary import Escalation

_CONSOLES = {"aws-cn": "console.amazonaws.cn", "aws-us-gov": "console.amazonaws-us-gov.com"}


def console_host(partition: str, region: str) -> str:
    """The Region's own console."""
    return f"{region}.{_CONSOLES.get(partition, 'console.aws.amazon.com')}"


def execution_url(arn: str) -> str:
    """Where the console shows this execution."""
    _, partition, _, region, *_ = arn.split(":")
    return f"https://{console_host(partition, region)}/states/home?region={region}#/v2/executions/details/{arn}"


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
        return execution_url(f"{self.workflow_arn.replace(':stateMachine:', ':execution:')}:{incident_id}")


NOWHERE = Reading()
