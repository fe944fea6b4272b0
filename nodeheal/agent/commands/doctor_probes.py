"""Implements the probes of `doctor`, each by the agent's own code. A failure raises ConfigError or OSError."""

import errno
import http.client
import os
import tempfile
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from nodeheal.agent.checks.check import CheckContext
from nodeheal.agent.checks.journal import TOOL as JOURNAL_TOOL
from nodeheal.agent.checks.memory import parse_used_percent
from nodeheal.agent.checks.tools import is_installed
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.compose import event_bus, heartbeat_item, signer_of
from nodeheal.agent.runtime.config import AgentConfig, KernelLog
from nodeheal.agent.transport.bus import BusUnavailable
from nodeheal.agent.transport.connect import node_metrics
from nodeheal.agent.transport.endpoint import endpoint
from nodeheal.agent.transport.event import Entry
from nodeheal.agent.transport.heartbeat_client import HeartbeatContent, HeartbeatRejected
from nodeheal.agent.transport.metrics import NotPut
from nodeheal.contract.names import AGENT_DOCTOR

ANSWER_SECONDS = 8.0
HINT = "; see 'Let it speak' in docs/agent.md"


def opens(log: KernelLog) -> str:
    """Open a kernel log for reading."""
    if log.kind == "journald":
        if not is_installed(JOURNAL_TOOL):
            raise FileNotFoundError(errno.ENOENT, "not installed", JOURNAL_TOOL)
        return log.path or "of this machine"
    with Path(log.path).open("rb"):
        return log.path


def writes(folder: Path) -> str:
    """Write to a folder. A missing folder is not created: root would create it with the wrong owner."""
    if not folder.exists():
        there = next(parent for parent in folder.parents if parent.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"{there} is not writable", str(folder))
        return f"{folder} does not exist yet: the agent creates it at its first start"
    with tempfile.NamedTemporaryFile(dir=folder):
        return str(folder)


def runs_scripts(folder: Path) -> str:
    """Check that scripts run below a folder: the SSM agent runs each command from a file there."""
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise PermissionError(errno.EACCES, "mounted noexec: every SSM command ends with exit code 126", str(folder))
    return f"scripts run in {folder}; the SSM agent runs five commands at once, and queues five more"


def speaks(config: AgentConfig) -> str:
    """Send an event that no rule matches to the bus, since PutEvents has no dry run. It costs a millionth of a
    dollar.
    """
    clock = Clock()
    bus = event_bus(config, clock)
    try:
        receipt = bus.put([Entry("doctor", AGENT_DOCTOR, "{}", clock.utc_now().timestamp())])
    except BusUnavailable as error:
        raise _failed(str(error), error.is_refusal) from error
    finally:
        bus.close()
    if receipt.hopeless or receipt.later:
        raise _failed("; ".join(why for _, why in (*receipt.hopeless, *receipt.later)), receipt.is_refusal)
    return "takes events of this node"


def takes_heartbeat(config: AgentConfig) -> str:
    """Write a true heartbeat to the table. Where the control plane wants another interval than the configuration, a
    second heartbeat states that one, since the control plane judges silence by the stored interval.
    """
    clock, every = Clock(), config.heartbeat_seconds
    item, key = heartbeat_item(config, clock), signer_of(config, clock).public()
    heartbeat = partial(HeartbeatContent, config.boot_id(), clock.utc_now().timestamp(), key=key)
    try:
        wanted = item.write(heartbeat(every))
        if wanted is not None and wanted != every:
            item.write(heartbeat(wanted))
    except HeartbeatRejected as error:
        raise _failed(str(error), error.is_refusal) from error
    finally:
        item.close()
    return f"accepted, every {wanted or every:g} s"


def measures(place: CheckContext) -> str:
    """Send a true value to CloudWatch, such as the agent sends each minute."""
    used = parse_used_percent((place.proc / "meminfo").read_text("ascii", "replace"))
    if used is None:
        raise OSError("/proc/meminfo is not understood")
    clock = Clock()
    metrics = node_metrics(place.config, clock)
    try:
        metrics.put({"memory_used_percent": used}, clock.utc_now())
    except NotPut as error:
        raise OSError(str(error)) from error
    finally:
        metrics.close()
    return f"takes this node's numbers: {used:.0f} % of the memory is in use"


def reaches_sns(config: AgentConfig) -> str:
    """Connect to SNS. Nothing is published, since the topic's subscribers would take it for a fault."""
    url = urlsplit(endpoint("sns", config.region))
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.hostname or "", url.port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/")
        connection.getresponse().read(1)
    except OSError as error:
        raise OSError(f"{url.netloc}: {str(error) or type(error).__name__}") from error
    except http.client.HTTPException as error:
        raise OSError(f"{url.netloc}: {type(error).__name__}") from error
    finally:
        connection.close()
    return f"{url.netloc} answers; permission to publish is not tested, because a test would page somebody"


def _failed(why: str, is_refusal: bool) -> OSError:
    return OSError(why + HINT * is_refusal)
