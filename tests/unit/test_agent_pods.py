"""Which machine an agent's pod speaks for is asked of its cluster, once."""

from dataclasses import dataclass, field, replace
from datetime import timedelta

from nodeheal.adapters.memory.heartbeats import MemoryHeartbeats
from nodeheal.contract.agent_pod import AgentPod
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.liveness import Heartbeat
from nodeheal.ports import Ports
from nodeheal.services.intake.agent_pods import LIVING_SECONDS, PODS_A_RUN, place_agent_pods
from tests.unit.builders import NOW, FrozenClock, memory_ports

NODE = "i-0aaaaaaaaaaaaaaaa"


@dataclass
class Pods:
    """AgentPods: the pods of clusters that answer."""

    machines: dict[AgentPod, str]
    silent: str = ""  # a cluster that does not answer
    asked: list[AgentPod] = field(default_factory=list)

    def machine_of(self, pod: AgentPod) -> str | None:
        self.asked.append(pod)
        if pod.cluster == self.silent:
            raise NotAccepted(f"{pod.cluster} does not answer")
        return self.machines.get(pod)


def world(pods: Pods, *living: AgentPod, seconds_ago: float = 0.0) -> tuple[Ports, MemoryHeartbeats]:
    ports = memory_ports(FrozenClock())
    scheduler = replace(ports.schedulers[SchedulerKind.ECS], agent_pods=pods)
    heartbeats = MemoryHeartbeats()
    for pod in living:
        at = NOW - timedelta(seconds=seconds_ago)
        heartbeats.beats[pod.signer] = Heartbeat(pod.signer, "boot-1", at, 60.0, pod=pod)
    return replace(ports, schedulers={SchedulerKind.ECS: scheduler}, heartbeats=heartbeats), heartbeats


def pod(number: int = 1, cluster: str = "training") -> AgentPod:
    return AgentPod(cluster, f"nodeheal-agent-{number}")


def test_a_pod_that_is_placed_is_not_asked_for_again() -> None:
    pods = Pods({pod(): NODE})
    ports, heartbeats = world(pods, pod())

    placed = [place_agent_pods(heartbeats.newest(), ports) for _ in range(2)]

    assert placed == [[NODE], []]
    assert heartbeats.newest()[NODE].boot_id == "boot-1"
    assert pods.asked == [pod()]


def test_what_no_cluster_knows_is_nobody() -> None:
    ports, heartbeats = world(Pods({}), pod())

    assert place_agent_pods(heartbeats.newest(), ports) == []
    assert heartbeats.pods == {}


def test_a_pod_that_has_fallen_silent_is_not_asked_for() -> None:
    pods = Pods({pod(): NODE})
    ports, heartbeats = world(pods, pod(), seconds_ago=LIVING_SECONDS + 1)

    assert place_agent_pods(heartbeats.newest(), ports) == []
    assert pods.asked == []


def test_a_cluster_that_does_not_answer_is_asked_once_and_delays_no_other() -> None:
    silent = [pod(number, "broken") for number in range(5)]
    pods = Pods({pod(): NODE}, silent="broken")
    ports, heartbeats = world(pods, *silent, pod())

    assert place_agent_pods(heartbeats.newest(), ports) == [NODE]
    assert pods.asked == [silent[0], pod()]


def test_a_run_asks_for_so_many_and_the_next_for_the_others() -> None:
    living = [pod(number) for number in range(PODS_A_RUN + 5)]
    pods = Pods({each: f"i-{number:017x}" for number, each in enumerate(living)})
    ports, heartbeats = world(pods, *living)

    assert [len(place_agent_pods(heartbeats.newest(), ports)) for _ in range(3)] == [PODS_A_RUN, 5, 0]
