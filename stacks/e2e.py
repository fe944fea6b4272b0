"""`make e2e`: nodeheal once through, on a real account: deploy, drill a node, watch it heal, take everything away.

It follows docs/first-account.md: steps 2 to 5, and 9. It costs cents and reboots one node. It refuses an account in
which nodeheal is deployed already, begins only when the account and the Region have been typed, and takes away what it
made, however the drill ended. `--dry-run` only says it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodeheal.contract import names
from stacks.settings import REPOSITORY

WHY = "end-to-end drill"
POLICY = {
    "default_pool": {"mode": "observe"},
    "stable_seconds": 10,
    "pools": {"{pool}": {"mode": "act", "drills": True, "budget": {"max_nodes": 1, "floor_nodes": 1}}},
}
NODE_SECONDS, DRILL_SECONDS = 900.0, 3_600.0
LOOK_EVERY_SECONDS = 5.0
SETTLE_SECONDS = 90.0  # a function keeps the policy that it has read for a minute
KEPT = "Kept, as docs/operations.md says under Uninstall: the table, the bucket, the AppConfig application."
LEFT = (
    "Not everything is taken away. IAM deletes no role that an instance profile holds: docs/operations.md, Uninstall."
)
Ask = Callable[[str], str]


class E2eFailed(Exception):
    """It did not go as it should; says what."""


@dataclass(frozen=True)
class E2e:
    """One run. `context`: further words for the CDK, as KEY=VALUE."""

    cluster: str
    pool: str
    emails: Sequence[str] = ()
    context: Sequence[str] = ()
    directory: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="nodeheal-e2e-")))
    look_every: float = LOOK_EVERY_SECONDS
    settle: float = SETTLE_SECONDS

    def cdk(self, verb: str, *words: str) -> list[str]:
        """A command of the CDK's CLI over the stack."""
        settings = json.dumps({"cluster": self.cluster, "alert_emails": list(self.emails)})
        given = [word for pair in (f"nodeheal={settings}", *self.context) for word in ("-c", pair)]
        where = ["--app", f"{sys.executable} app.py", "--output", str(self.directory / "cdk.out")]
        cli = str(REPOSITORY / "node_modules" / ".bin" / "cdk")
        return [cli, verb, *words, "--no-version-reporting", "--no-notices", "--ci", *given, *where]

    def deploy(self) -> list[str]:
        """Brings it into the account, where an earlier run may have left its table and its bucket."""
        return self.cdk("deploy", "--require-approval", "never", "--import-existing-resources")

    def drill(self, node: str) -> list[list[str]]:
        """What a person would type, up to the fault."""
        why = ("--why", WHY)
        return [
            nodeheal("policy", "apply", str(self.policy()), *why),
            nodeheal("nodes", "enroll", node, "--pool", self.pool, "--cluster", self.cluster, *why),
            nodeheal("inject", node, "--xid", "79", *why),
        ]

    def tear_down(self, node: str) -> list[list[str]]:
        """Takes it away again, tags and all."""
        retire = [nodeheal("nodes", "retire", node, "--why", WHY)] if node else []
        return [*retire, self.cdk("destroy", "--force")]

    def policy(self) -> Path:
        """The policy document of the drill."""
        path = self.directory / "policy.json"
        path.write_text(json.dumps(POLICY).replace("{pool}", self.pool), encoding="utf-8")
        return path


def nodeheal(*words: str) -> list[str]:
    """A command of the operator's."""
    return [str(Path(sys.executable).with_name("nodeheal")), *words]


# Before the deployment, after it and when the node is enrolled. A person reads what it finds; an address that has not
# confirmed is no reason to stop.
DOCTOR = nodeheal("doctor")


def dry_run(e2e: E2e) -> str:
    """Every command, in order, and nothing is done."""
    node = "NODE"
    *prepare, inject = e2e.drill(node)
    lines = [DOCTOR, e2e.deploy(), DOCTOR, *prepare, DOCTOR, inject, *e2e.tear_down(node)]
    return "".join(f"{' '.join(line)}\n" for line in lines)


def confirm(account: str, region: str, ask: Ask) -> None:
    """Only who types both means them. Raises E2eFailed."""
    wanted = f"{account} {region}"
    typed = ask(f"This deploys nodeheal, reboots one node and takes nodeheal away again. Type '{wanted}' to go on: ")
    if typed.strip() != wanted:
        raise E2eFailed("not confirmed: nothing was done")


def refuse_where_it_is_deployed(client: Any) -> None:
    """What somebody uses is not taken away at the end. Raises E2eFailed."""
    known = {
        stack["StackName"] for page in client.get_paginator("describe_stacks").paginate() for stack in page["Stacks"]
    }
    if names.STACK in known:
        raise E2eFailed("nodeheal is deployed here: this would take it away. Use an account or a Region without it")


def play(e2e: E2e, ask: Ask) -> None:
    """Deploy, drill, watch; take away whatever happened. Raises E2eFailed."""
    node = ""
    try:
        run(DOCTOR, must=False)
        run(e2e.deploy())
        run(DOCTOR, must=False)
        node = ask(
            "Give a node the role that the output NodeRoleArn names, and the ECS agent's own policy with it. Say "
            f'pool = "{e2e.pool}" and drills = true in its agent.toml, and install the agent (docs/agent.md). '
            "Its id, mi-... or i-...: "
        ).strip()
        wait(lambda: is_heard(node), NODE_SECONDS, e2e.look_every, f"the agent of {node} has reported")
        *prepare, inject = e2e.drill(node)
        for command in prepare:
            run(command)
        time.sleep(e2e.settle)
        run(DOCTOR, must=False)
        run(inject)
        wait(lambda: has_recovered(e2e.pool), DRILL_SECONDS, e2e.look_every, f"{node} has recovered")
        run(nodeheal("incidents", "list", "--pool", e2e.pool, "--since", "1d"))
    finally:
        left = [command for command in e2e.tear_down(node) if not run(command, must=False)]
        say(LEFT if left else KEPT)
    if left:
        raise E2eFailed(f"not everything was taken away: {' '.join(left[0][:3])} failed")


def is_heard(node: str) -> bool:
    """Whether its agent has reported."""
    return subprocess.run(nodeheal("nodes", "show", node), capture_output=True, check=False).returncode == 0


def has_recovered(pool: str) -> bool:
    """Whether the drill's incident has ended well. Raises E2eFailed where it has ended otherwise."""
    listed = subprocess.run(
        nodeheal("incidents", "list", "--pool", pool, "--since", "1d", "--json"), capture_output=True, check=False
    )
    endings = [one["ending"] for one in json.loads(listed.stdout or b"[]")]
    if any(ending not in (None, "", "RECOVERED") for ending in endings):
        raise E2eFailed(f"the incident ended {', '.join(map(str, endings))}: `nodeheal incidents show` says why")
    return "RECOVERED" in endings


def run(command: list[str], *, must: bool = True) -> bool:
    """Run it where everybody can see it; whether it succeeded. Raises E2eFailed where it fails and must not."""
    say(f"$ {' '.join(command)}")
    done = subprocess.run(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0 and must:
        raise E2eFailed(f"it ended with {done.returncode}: {' '.join(command[:3])}")
    return done.returncode == 0


def wait(is_so: Callable[[], bool], seconds: float, every: float, what: str) -> None:
    """Until it is so. Raises E2eFailed."""
    say(f"waiting until {what}, {seconds / 60:.0f} minutes at most")
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise E2eFailed(f"it is not so that {what}")
        time.sleep(every)


def say(text: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None, ask: Ask = input) -> int:
    """0: the node was healed. 1: it was not, or nothing was done."""
    parser = argparse.ArgumentParser(prog="make e2e", description=__doc__)
    parser.add_argument("--cluster", default="training", help="the ECS cluster of the node")
    parser.add_argument("--pool", default="e2e", help="the pool that the node's agent.toml names")
    parser.add_argument("--email", action="append", default=[], help="who hears of it; must confirm")
    parser.add_argument("--context", action="append", default=[], metavar="KEY=VALUE", help="for the CDK")
    parser.add_argument("--look-every", type=float, default=LOOK_EVERY_SECONDS, help="seconds between two looks")
    parser.add_argument("--settle", type=float, default=SETTLE_SECONDS, help="seconds until all go by the new policy")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    given = parser.parse_args(arguments)
    e2e = E2e(given.cluster, given.pool, given.email, given.context, look_every=given.look_every, settle=given.settle)
    if given.dry_run:
        say(dry_run(e2e))
        return 0
    try:
        _play_where_it_may(e2e, ask)
    except E2eFailed as failed:
        say(f"e2e: {failed}")
        return 1
    say("e2e: the node was healed")
    return 0


def _play_where_it_may(e2e: E2e, ask: Ask) -> None:
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    region = os.environ.get("AWS_REGION") or boto3.Session().region_name
    if not region:
        raise E2eFailed("which Region? Set AWS_REGION")
    # Every command of the run goes there: the CDK's CLI and `nodeheal` read it.
    os.environ["AWS_REGION"] = os.environ["AWS_DEFAULT_REGION"] = region
    try:
        refuse_where_it_is_deployed(boto3.client("cloudformation", region_name=region))
        account = boto3.client("sts", region_name=region).get_caller_identity()["Account"]
    except (BotoCoreError, ClientError) as error:
        raise E2eFailed(f"AWS cannot be asked, so nothing was done: {error}") from error
    confirm(account, region, ask)
    play(e2e, ask)


if __name__ == "__main__":
    sys.exit(main())
