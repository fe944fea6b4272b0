"""`make demo`: a GPU falls off the bus on a simulated ECS Anywhere node, and a training job recovers by itself."""

import argparse
import contextlib
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from nodeheal.adapters.aws.policy_documents import PolicyDocuments, deployed_place
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.parsers.kernel_line import parse_message
from nodeheal.simulation.latency import LATENCIES
from sandbox import hyperpod
from sandbox.client import Sandbox, SandboxError, is_running
from sandbox.deployment import DeployFailed
from sandbox.hyperpod_story import HYPERPOD, HyperPodScript, HyperPodStory
from sandbox.kubernetes import control_plane
from sandbox.kubernetes_story import CLUSTER, KubernetesStory
from sandbox.kubernetes_story import why_missing as why_no_kubernetes
from sandbox.mailbox import MailFolder
from sandbox.neuron_story import NEURON
from sandbox.report import Verdict, judge, make_report
from sandbox.screen import Screen, Where, show_summary
from sandbox.script import GANG_NODES, Script
from sandbox.slurm import why_missing
from sandbox.slurm_story import SlurmStory
from sandbox.stories import CAREFUL, FALLEN, STORIES, Named
from sandbox.story import Listener, Story, StoryError

BUILD = Path(__file__).resolve().parent.parent / "build"
REPORT = BUILD / "demo-report.json"
DEFAULT_FAULT = FALLEN
MOST_NODES = 8
LONGEST_BOOT = 30  # the sandbox's policy waits 40 s for a reboot
RUNS_KEPT = 3
CHECKS = ("dcgm_counters",)  # the others would see this machine, which all nodes share
KUBERNETES_STORIES = {
    "hyperpod": Named(
        "HyperPod's nodes: Xid 74 replaces, Xid 73 reboots, a label orders, and NodeRecovery Automatic is left to it",
        HYPERPOD[0],
        HYPERPOD[1:],
    ),
    "neuron": Named("errors of Trainium devices: first with recovery off, then with recovery on", NEURON),
}
ANSWER_SECONDS = 1_800
MAIL_SECONDS = 1.0  # between two looks for new emails
STOPPED_BY_USER = 130


def main(arguments: list[str] | None = None) -> int:
    """Play one story. Returns 0: it ended as it should; 1: it did not; 2: the options are not valid."""
    options = _options(arguments)
    if options.story == "list" and _stories(options.scheduler):
        sys.stdout.writelines(f"  {name:<22} {story.about}\n" for name, story in _stories(options.scheduler).items())
        return 0
    scripts = _scripts(options)
    if isinstance(scripts, str):
        sys.stderr.write(f"demo: {scripts}\n")
        return 2
    console = Console(highlight=False, record=options.picture is not None)
    directory = _fresh_directory()
    try:
        return _play(console, directory, scripts, options)
    except (StoryError, SandboxError, DeployFailed, control_plane.KubectlError) as error:
        console.print(f"[bold red]The demo could not continue:[/] {error}", soft_wrap=True)
        if directory.exists():
            console.print(f"The logs of this run are in {directory}", style="dim", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("Stopped. Everything that the demo started has been ended.")
        return STOPPED_BY_USER


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo ARGS=…", description=__doc__)
    parser.add_argument(
        "--story",
        choices=[*STORIES, *KUBERNETES_STORIES, "list"],
        metavar="NAME",
        help="play this one; --story list names them",
    )
    parser.add_argument("--fault", default=DEFAULT_FAULT, help="the kernel line to append; default: %(default)s")
    parser.add_argument(
        "--fault-persists", action="store_true", help="a reboot does not help: diagnostics keep failing"
    )
    parser.add_argument(
        "--scheduler", choices=[kind.lower() for kind in SchedulerKind], default="ecs", help="default: %(default)s"
    )
    parser.add_argument("--nodes", type=int, default=3, help="simulated nodes, two of which run the job (default 3)")
    parser.add_argument(
        "--boot-seconds", type=float, default=3.0, help="how long a reboot takes (default 3, at most 30)"
    )
    parser.add_argument(
        "--latency", choices=LATENCIES, default="none", help="latencies of AWS to add: none (default), or aws"
    )
    parser.add_argument("--port", type=int, help="the emulator's port on 127.0.0.1 (default: one that is free)")
    parser.add_argument(
        "--keep", action="store_true", help="leave everything running at the end, for inspection, until Ctrl-C"
    )
    parser.add_argument(
        "--console",
        action="store_true",
        help="with --keep: open the console on the cloud that runs, and add a pool whose policy asks first",
    )
    parser.add_argument("--picture", type=Path, metavar="FILE.svg", help="draw the timeline into this file, too")
    return parser.parse_args(arguments)


def _stories(scheduler: str) -> dict[str, Named]:
    """Return the stories that are played on this scheduler."""
    return {"ecs": STORIES, "kubernetes": KUBERNETES_STORIES}.get(scheduler, {})


def _scripts(options: argparse.Namespace) -> tuple[Script, ...] | str:
    """Return the parts of the requested story, or what is wrong with the options."""
    if options.scheduler == "kubernetes" and why_no_kubernetes():
        return f"--scheduler kubernetes: {why_no_kubernetes()}"
    if options.story:
        named = _stories(options.scheduler).get(options.story)
        if named is None:
            return (
                f"--story {options.story}: not played on {options.scheduler}; remove --scheduler, or try --story list"
            )
        kind = SchedulerKind(options.scheduler.upper())
        return tuple(replace(script, scheduler=kind) for script in (named.script, *named.then))
    if not GANG_NODES <= options.nodes <= MOST_NODES:
        return (
            f"--nodes {options.nodes}: the job needs {GANG_NODES} nodes, and more than {MOST_NODES} are not simulated"
        )
    if options.port is not None and not 0 < options.port < 65_536:
        return f"--port {options.port}: a port is a number from 1 to 65535"
    if not 0 < options.boot_seconds <= LONGEST_BOOT:
        return f"--boot-seconds {options.boot_seconds}: more than 0 and at most {LONGEST_BOOT}"
    try:
        script = script_of(options.fault, options.fault_persists, options.nodes, options.boot_seconds)
    except ValueError as error:
        return f"--fault: {error}"
    script = replace(script, scheduler=SchedulerKind(options.scheduler.upper()))
    if script.scheduler is SchedulerKind.SLURM and why_missing():
        return f"--scheduler slurm: {why_missing()}"
    if script.persists and not script.is_the_nodes:
        return (
            f"--fault-persists makes no difference here: code {script.code} asks for {script.action}, not for a repair"
        )
    return (script,)


def script_of(line: str, persists: bool = False, nodes: int = 3, boot_seconds: float = 3.0) -> Script:
    """Return the story of one kernel line. Raises ValueError for a line that the agent would not take for a fault."""
    finding = parse_message(line)
    if finding is None:
        raise ValueError(f"{line!r} is not a fault that the agent can read; an example is {DEFAULT_FAULT!r}")
    return Script(line, finding.family, finding.code, persists, nodes, boot_seconds, subcode=finding.subcode)


def deploy_for(scheduler: SchedulerKind, sandbox: Sandbox, provider: str = "") -> float:
    """Deploy the stack with what a story on this scheduler needs; return the seconds that it took."""
    if scheduler is not SchedulerKind.KUBERNETES:
        return sandbox.deploy()
    sandbox.create_eks_cluster(CLUSTER)  # its control plane starts while the stack is deployed
    of_hyperpod = {"hyperpod_clusters": [hyperpod.arn()], "pod_identity_clusters": [CLUSTER]}
    settings = {"eks_clusters": [CLUSTER], **(of_hyperpod if provider == "hyperpod" else {})}
    return sandbox.deploy("-c", f"nodeheal={json.dumps(settings)}")


def story_of(sandbox: Sandbox, script: Script, listener: Listener) -> Story:
    """Return the playing of the script, on its scheduler."""
    if isinstance(script, HyperPodScript):
        return HyperPodStory(sandbox, script, listener)
    kinds = {SchedulerKind.SLURM: SlurmStory, SchedulerKind.KUBERNETES: KubernetesStory}
    return kinds.get(script.scheduler, Story)(sandbox, script, listener)


def _fresh_directory() -> Path:
    """Create a folder for this run; the newest few of earlier ones are kept."""
    root = BUILD / "sandbox"
    root.mkdir(parents=True, exist_ok=True)
    for old in sorted(root.glob("run-*"))[: -RUNS_KEPT + 1]:
        if not is_running(old):
            shutil.rmtree(old, ignore_errors=True)
    return root / f"run-{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 1000:03d}"


def _play(console: Console, directory: Path, scripts: tuple[Script, ...], options: argparse.Namespace) -> int:
    with Screen(console) as screen, Sandbox(directory, options.port, scripts[0].boot_seconds) as sandbox:
        sandbox.behave(**LATENCIES[options.latency].of_sandbox())
        if options.latency != "none":
            screen.stage(f"--latency {options.latency}: each call is as slow as in an account")
        screen.stage(f"embedded AWS is up on {sandbox.endpoint_url}, IAM enforced")
        screen.busy("cdk deploy")
        seconds = deploy_for(scripts[0].scheduler, sandbox, scripts[0].provider)
        screen.stage(f"cdk deploy: the stack nodeheal in {seconds:.1f} s")
        emails, played = MailFolder(sandbox.directory / "mail"), list[tuple[Story, dict[str, Any], Verdict]]()
        try:
            for number, script in enumerate(scripts, start=1):
                if len(scripts) > 1:
                    screen.stage(f"part {number} of {len(scripts)}, on nodes of its own")
                story = story_of(sandbox, replace(script, checks=CHECKS), screen.hear)
                story.play()
                list(emails.keep(sandbox.all_mails(), sandbox.gets_emails))
                report = {**make_report(story, LATENCIES[options.latency]), "latency": options.latency}
                played.append((story, report, judge(story, report)))
            if not options.keep:
                screen.busy("ending the emulator, the nodes and the job")
                sandbox.close()
            screen.__exit__()
            if options.picture is not None:
                options.picture.write_text(_picture(console), "utf-8")
            *before, last = [report for _, report, _ in played]
            REPORT.write_text(json.dumps({**last, "before": before}, indent=2) + "\n", "utf-8")
            where = Where(*(str(path.relative_to(BUILD.parent)) for path in (REPORT, emails.folder)))
            for story, report, verdict in played:
                show_summary(console, report, verdict, story.told, where)
        finally:
            screen.__exit__()
            if options.keep:
                _show_around(console, sandbox, story, emails, has_console=options.console)
    return 0 if all(verdict.is_right for _, _, verdict in played) else 1


def _picture(console: Console) -> str:
    """What was printed so far, as SVG: with the fonts of the reader, and without the paths of this machine."""
    drawn = console.export_svg(title="make demo", clear=False)
    return re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL).replace(str(BUILD.parent), "~/nodeheal")


def ways_around(sandbox: Sandbox, story: Story) -> list[str]:
    """Return commands for inspecting the running sandbox, line by line."""
    own = {key: value for key, value in sandbox.environment().items() if key.startswith(("AWS_", "NODEHEAL_"))}
    return [
        f"Everything is still running. In another terminal, in {BUILD.parent}:",
        "",
        f"  export {' '.join(f'{key}={value}' for key, value in {**own, **story.variables}.items())}",
        *story.own_commands,
        "  .venv/bin/nodeheal status",
        "  .venv/bin/nodeheal incidents show latest",
        f"  .venv/bin/nodeheal nodes list {story.script.pool}",
        "  .venv/bin/nodeheal jobs list",
        f"  .venv/bin/nodeheal inject {sandbox.nodes()[0]['node_id']} --xid 79 --why 'a drill'",
        "  .venv/bin/nodeheal approve latest --why 'looks right'    # where an incident waits for a yes",
        "",
        f"Every email of this cloud: {sandbox.directory / 'mail'}",
        f"Logs of nodes, functions and the emulator: {sandbox.directory}",
        "Ctrl-C ends all of it.",
    ]


def _show_around(
    console: Console, sandbox: Sandbox, story: Story, emails: MailFolder, *, has_console: bool = False
) -> None:
    """Print them and each new email, until the user ends it. Other exceptions are raised again after it."""
    for line in ["", *ways_around(sandbox, story)]:
        console.print(line, soft_wrap=True, markup=False)
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as ends:
        if has_console:
            add_pool_that_asks(sandbox)
            console.print(f"The console; nodes of the pool {CAREFUL} ask before anything is done with them:")
            ends.enter_context(serve_console(sandbox))
        while not threading.Event().wait(MAIL_SECONDS):
            for subject, file in emails.keep(sandbox.all_mails(), sandbox.gets_emails):
                console.print(f"email: {subject} ({file})", soft_wrap=True, markup=False)
    console.print("Ending the emulator, the nodes and the job.")


def add_pool_that_asks(sandbox: Sandbox) -> None:
    """Boot two nodes in a pool whose policy asks."""
    let_people_answer(sandbox)
    for _ in range(2):
        sandbox.add_node(CAREFUL, checks=CHECKS)


def let_people_answer(sandbox: Sandbox) -> None:
    """Permit drills in the pool whose policy asks, and let people take as long to answer as in an account."""
    documents = PolicyDocuments(sandbox.client("appconfig"), deployed_place(sandbox.client("cloudformation")))
    policy = json.loads(documents.in_force().text)
    policy["deadlines"]["approval_seconds"] = ANSWER_SECONDS
    policy["pools"][CAREFUL]["drills"] = True
    documents.apply(json.dumps(policy), "people answer in the console")


@contextlib.contextmanager
def serve_console(sandbox: Sandbox) -> Iterator[None]:
    """Run `nodeheal console` on the cloud; it prints its address itself."""
    command = [str(Path(sys.executable).with_name("nodeheal")), "console"]
    with subprocess.Popen(command, env=sandbox.environment()) as process:
        try:
            yield
        finally:
            process.terminate()


if __name__ == "__main__":
    sys.exit(main())
