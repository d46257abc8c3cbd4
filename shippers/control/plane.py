"""All that one agent reads of the control plane of its cluster, and the seat that makes it the only one to do so."""

import socket
import time
from collections import deque
from pathlib import Path
from typing import Final

from schemas.records import SourceProgress
from shippers.config import Config, ConfigError, parse_start_at
from shippers.control.kube_access import access_of
from shippers.control.kube_api import Api
from shippers.control.kube_events import Events
from shippers.control.kube_jobs import JobObjects
from shippers.control.kube_nodes import Head
from shippers.control.kube_nodes import Nodes as KubeNodes
from shippers.control.kube_placed import Placed
from shippers.control.kube_pods import Pods
from shippers.control.kube_watch import Kind, KindWatcher
from shippers.control.lease import LeaseStore
from shippers.control.seat import Duty, OnlyOne, Seat, SeatStore
from shippers.control.seat_file import FileStore
from shippers.control.settings import ControlSettings, KubernetesSettings
from shippers.control.slurm import Commands, Look, SlurmWatcher
from shippers.control.slurm_looks import Jobs, Nodes, Reservations, Switches
from shippers.control.source import ControlSource, Watcher
from shippers.control.table import Table
from shippers.positions import Positions

_MOST_PENDING: Final = 10_000


class ControlPlane:
    """The sources of `[control]`, and who of several agents reads them."""

    def __init__(self, config: Config, saved: Positions) -> None:
        """Raises ConfigError."""
        assert config.control is not None
        api = _api(config.control.kubernetes)
        self._duty = _duty(config.control, api)
        self.sources = [ControlSource(each, self._duty, saved.get(each.name)) for each in _watchers(config, api)]
        self._names = {source.name for source in self.sources}
        self._said: dict[str, str] = {}
        self._pending: deque[tuple[int, str, str]] = deque(maxlen=_MOST_PENDING)

    @property
    def is_active(self) -> bool:
        """Whether this agent speaks for the control plane now."""
        return self._duty.term > 0

    def probe(self) -> list[SourceProgress]:
        """Whether each source would answer, and whether the seat can be used. Takes nothing, tells nothing."""
        return [
            *([self._duty.probe()] if isinstance(self._duty, Seat) else []),
            *(each.probe() for each in self.sources),
        ]

    def start(self) -> None:
        """Look after the seat from now on."""
        self._duty.start()

    def note(self, positions: Positions, durable_seq: int, acked_seq: int) -> None:
        """How far all is on disk, and how far Kafka has it: what comes after that, another agent reads again."""
        for name in self._names:
            position = positions.get(name)
            memo = position.generations[0].memo if position and position.generations else ""
            if memo and self._said.get(name) != memo:
                self._said[name] = memo
                self._pending.append((durable_seq, name, memo))
        while self._pending and self._pending[0][0] <= acked_seq:
            _, name, memo = self._pending.popleft()
            self._duty.publish(name, memo)

    def close(self) -> None:
        """Give the seat back."""
        self._duty.close()


def _api(settings: KubernetesSettings | None) -> Api | None:
    return None if settings is None else Api(access_of(settings), settings.timeout_s)


def _duty(settings: ControlSettings, api: Api | None) -> Duty:
    kind = settings.seat
    if kind == "auto":
        kind = "lease" if api is not None else "file" if settings.seat_file else "none"
    if kind == "none":
        return OnlyOne()
    store: SeatStore
    if kind == "file":
        if not settings.seat_file:
            raise ConfigError('[control] seat = "file" needs seat_file: a file that all agents of the cluster see')
        store = FileStore(Path(settings.seat_file))
    else:
        if api is None or settings.kubernetes is None:
            raise ConfigError('[control] seat = "lease" needs [control.kubernetes]')
        namespace = settings.kubernetes.lease_namespace or api.access.namespace
        store = LeaseStore(api, namespace, settings.kubernetes.lease, settings.seat_s)
    identity = settings.identity or socket.gethostname()
    return Seat(store, identity, seat_s=settings.seat_s, renew_s=settings.renew_s)


def _watchers(config: Config, api: Api | None) -> list[Watcher]:
    control, age_ns = config.control, parse_start_at(config.start_at).age_ns
    assert control is not None
    head = Head(run=config.run, run_id=config.run_id, cluster=config.cluster, reporter=config.reporter)
    watchers: list[Watcher] = []
    if api is not None and control.kubernetes is not None:
        selector = control.kubernetes.pod_selector
        watchers += [
            KindWatcher(kind, api, age_ns=age_ns, selector=selector if isinstance(kind, Pods) else "")
            for kind in _kinds(control.kubernetes, api, head)
        ]
    if control.slurm is not None:
        ask, every_s = Commands(control.slurm).ask, control.slurm.every_s
        looks: dict[str, Look] = {
            "jobs": Jobs(head),
            "nodes": Nodes(head),
            "reservations": Reservations(head),
            "switches": Switches(head),
        }
        for name, look in looks.items():
            # Where nodes hang hardly ever changes.
            pace_s = every_s * 20 if name == "switches" else every_s
            watchers.append(SlurmWatcher(f"slurm/{name}", look, ask, every_s=pace_s, age_ns=age_ns))
    if control.topology is not None:
        table = Table(head, Path(control.topology.table))
        watchers.append(SlurmWatcher("topology", table, _nobody, every_s=control.topology.every_s, age_ns=age_ns))
    return watchers


def _kinds(settings: KubernetesSettings, api: Api, head: Head) -> list[Kind]:
    placed, kinds = Placed(), list[Kind]()
    # Pods first: events ask them where a pod is.
    for namespace in settings.namespaces or ("",):
        kinds += [Pods(placed, namespace)] if "pods" in settings.watch else []
        kinds += [Events(placed, settings.skip, namespace)] if "events" in settings.watch else []
        kinds += [
            JobObjects(api, placed, each, namespace)
            for each in ("jobs", "jobsets", "workloads")
            if each in settings.watch
        ]
    if "nodes" in settings.watch and not settings.namespaces:
        kinds.append(KubeNodes(head, time.time_ns))
    return kinds


def _nobody(program: str, arguments: tuple[str, ...]) -> str:
    """A file is not asked of a program."""
    raise AssertionError(program)
