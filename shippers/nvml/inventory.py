"""The GPUs of a node as a record: what the fleet's inventory is made of."""

from schemas.records import Gpu, NodeFacts
from shippers.config import Config
from shippers.nvml.messages import Opened


def node_facts(config: Config, boot_id: str, opened: Opened, observed_ns: int) -> NodeFacts:
    """What NVML says of the node. `observed_ns` is by the wall clock; a record that says the same is the same."""
    return NodeFacts(
        run=config.run, run_id=config.run_id, cluster=config.cluster, reporter=config.reporter, boot_id=boot_id,
        observed_time_unix_nano=observed_ns, machine_id=config.machine_id or None,
        gpus=[
            Gpu(pci_bus_id=gpu.address, index=gpu.index, uuid=gpu.uuid, serial=gpu.serial, model=gpu.model)
            for gpu in opened.gpus
        ],
        versions={"driver": opened.driver, "nvml": opened.library},
    )  # fmt: skip
