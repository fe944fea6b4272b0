"""Reports of what a node is made of."""

from nodeheal.contract.health_event import Accelerator, NodeHardwareReported
from nodeheal.ports import Ports
from nodeheal.services.intake.wakeup import on_hardware_reported

GPUS = [
    Accelerator(
        index=index,
        component=f"0000:{address}:00.0",
        model="NVIDIA H100 80GB HBM3",
        serial=f"16539220001{index}",
        uuid=f"GPU-{index}",
        memory_mib=81_559,
        ecc_uncorrected=index,
        rows_remapped=2,
        links=18,
        links_up=17,
        temperature_celsius=41.0,
    )
    for index, address in enumerate(("b9", "ba"))
]


def reports_hardware(ports: Ports, node_id: str, reporter: str = "", **changes: object) -> None:
    """The node, or another `reporter` in its name's place, says what it is made of."""
    node = ports.nodes.get(node_id)
    assert node is not None
    said = {
        "schema_version": 1,
        "event_id": "hardware",
        "node_id": reporter or node_id,
        "cluster": node.cluster.name,
        "pool": node.pool,
        "provider": node.provider,
        "scheduler": node.cluster.kind,
        "instance_id": reporter or node_id,
        "boot_id": node.boot_id,
        "observed_at": ports.clock(),
        "agent_version": "0.3.0",
        **changes,
    }
    report = NodeHardwareReported.model_validate({**said, "machine": "p5.48xlarge", "accelerators": GPUS})
    on_hardware_reported(report, ports)
