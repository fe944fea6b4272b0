"""Links to more about an incident: its page, or its execution in the console of AWS, and its runbook."""

from dataclasses import dataclass
from urllib.parse import quote

from nodeheal.contract.vocabulary import Escalation

RUNBOOKS = "docs/runbooks"  # in this repository
_CONSOLES = {"aws-cn": "console.amazonaws.cn", "aws-us-gov": "console.amazonaws-us-gov.com"}


def console_host(partition: str, region: str) -> str:
    """Returns the Region's own console."""
    return f"{region}.{_CONSOLES.get(partition, 'console.aws.amazon.com')}"


def execution_url(arn: str) -> str:
    """Returns the address of this execution in the console."""
    _, partition, _, region, *_ = arn.split(":")
    return f"https://{console_host(partition, region)}/states/home?region={region}#/v2/executions/details/{arn}"


def dashboard_url(partition: str, region: str, name: str) -> str:
    """Returns the address of this dashboard in the console."""
    return f"https://{console_host(partition, region)}/cloudwatch/home?region={region}#dashboards/dashboard/{name}"


def runbook_file(code: Escalation) -> str:
    """Returns the runbook's file in docs/runbooks."""
    return f"{code.value.lower().replace('_', '-')}.md"


@dataclass(frozen=True)
class ConsoleLinks:
    """What the links are made of. An empty field is unknown, and its link is left out."""

    workflow_arn: str = ""  # of recover_node
    runbooks: str = ""  # where docs/runbooks stands: a path, or an address
    console_url: str = ""  # of a console that people sign in to

    def runbook(self, code: Escalation) -> str:
        """Returns the runbook's address. Where that is not known, its file name, and where it is in the repository."""
        base, file = self.runbooks.rstrip("/"), runbook_file(code)
        in_repository = " in the repository" if base == RUNBOOKS else ""
        return f"{base}/{file}{in_repository}" if base else file

    def incident(self, incident_id: str) -> str:
        """Returns the address of the incident's page; where there is no console, of its execution at Step Functions.
        Empty: neither is known.
        """
        if self.console_url:
            return f"{self.console_url}/incidents/{quote(incident_id, safe='')}"
        if not self.workflow_arn:
            return ""
        return execution_url(f"{self.workflow_arn.replace(':stateMachine:', ':execution:')}:{incident_id}")


NO_LINKS = ConsoleLinks()
