"""The real Apache broker with TLS, SCRAM and client certificates, on loopback."""

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewTopic

from pipeline.embedded.kafka import LOG4J, answers_requests, find_java, java_environment, new_cluster_id
from pipeline.embedded.part import Part
from pipeline.embedded.ports import LOOPBACK, free_port
from schemas.topics import Topic
from tests.certificates import Authority
from tests.polling import until

USER: Final = "agent"
PASSWORD: Final = "correct-horse-7391"
# Listener name: what it speaks, and whose certificate it shows.
LISTENERS: Final = {
    "INTERNAL": ("PLAINTEXT", ""),
    "TLS": ("SSL", "server"),
    "LOGIN": ("SASL_SSL", "server"),
    "MUTUAL": ("SSL", "server"),
    "EXPIRED": ("SSL", "expired"),
    "ELSEWHERE": ("SSL", "elsewhere"),
}


class SecuredKafka:
    """One broker, each way to log in on a port of its own."""

    def __init__(self, folder: Path, jars: Path) -> None:
        self._folder = folder
        self._jars = jars
        self.authority = Authority(folder / "certificates")
        self.stranger = Authority(folder / "certificates", "stranger")
        self.authority.issue("server")
        self.authority.issue("expired", days=-1)
        self.authority.issue("elsewhere", hosts=("elsewhere.example",))
        self.client = self.authority.issue("client", hosts=("client.example",))
        self.locked_client = self.authority.issue("locked", hosts=("client.example",), password="opensesame-55")
        self.strange_client = self.stranger.issue("strange", hosts=("client.example",))
        self._ports = {name: free_port() for name in LISTENERS}
        self._part = Part(name="secured Kafka", pid_file=folder / "broker.pid", log_file=folder / "broker.log")

    @property
    def ca(self) -> str:
        """The authority's certificate."""
        return str(self.authority.certificate)

    def address(self, listener: str) -> str:
        """Where a listener answers."""
        return f"{LOOPBACK}:{self._ports[listener]}"

    def start(self) -> None:
        """Format with two SCRAM users of the same name and password, then start."""
        properties = self._folder / "server.properties"
        properties.write_text(self._properties(free_port()), encoding="utf-8")
        scram = [f"{kind}=[name={USER},password={PASSWORD}]" for kind in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
        storage = ["kafka.tools.StorageTool", "format", "-t", new_cluster_id(), "-c", str(properties)]
        added = [word for each in scram for word in ("--add-scram", each)]
        done = subprocess.run(
            [*self._java(), *storage, *added], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self._run()

    def drop_connections(self) -> None:
        """Start again: every client must log in anew."""
        self._part.stop()
        self._run()

    def stop(self) -> None:
        """End it."""
        self._part.stop()

    def make_topics(self, topics: Iterable[Topic]) -> None:
        """Create topics as they are declared."""
        admin = self._admin()
        new = [NewTopic(each.name, each.partitions or 1, 1, config=each.settings()) for each in topics]
        for future in admin.create_topics(new).values():
            future.result(30)

    def set_password(self, password: str) -> None:
        """Give the user another password, as an administrator would."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(USER, info, password.encode())
        admin = self._admin()
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(30)

    def _run(self) -> None:
        properties = str(self._folder / "server.properties")
        self._part.start([*self._java(), "kafka.Kafka", properties], env=java_environment())
        until(lambda: answers_requests(self._ports["INTERNAL"]), what="the secured broker answers")

    def _java(self) -> list[str]:
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        options += [f"-Dlog4j2.configurationFile={LOG4J.as_uri()}", f"-Drootrank.log.dir={self._folder}"]
        return [find_java(), *options, "-cp", f"{self._jars}/*"]

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address("INTERNAL")})

    def _properties(self, controller_port: int) -> str:
        listeners = ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in self._ports.items())
        kinds = ",".join(f"{name}:{kind}" for name, (kind, _) in LISTENERS.items())
        lines = [
            "process.roles=broker,controller", "node.id=1",
            f"controller.quorum.voters=1@{LOOPBACK}:{controller_port}",
            f"listeners={listeners},CONTROLLER://{LOOPBACK}:{controller_port}",
            f"advertised.listeners={listeners}",
            f"listener.security.protocol.map={kinds},CONTROLLER:PLAINTEXT",
            "controller.listener.names=CONTROLLER", "inter.broker.listener.name=INTERNAL",
            f"log.dirs={self._folder / 'data'}", "auto.create.topics.enable=false", "message.max.bytes=16777216",
            "offsets.topic.num.partitions=4", "offsets.topic.replication.factor=1",
            "transaction.state.log.num.partitions=4", "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1", "share.coordinator.state.topic.num.partitions=4",
            "share.coordinator.state.topic.replication.factor=1", "share.coordinator.state.topic.min.isr=1",
            "group.initial.rebalance.delay.ms=0", "log.cleaner.dedupe.buffer.size=16777216",
            "sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512",
        ]  # fmt: skip
        certificates = self._folder / "certificates"
        for name, (kind, shown) in LISTENERS.items():
            head = f"listener.name.{name.lower()}"
            if shown:
                lines += [
                    f"{head}.ssl.keystore.type=PEM",
                    f"{head}.ssl.keystore.location={certificates / f'{shown}.both.pem'}",
                    f"{head}.ssl.truststore.type=PEM", f"{head}.ssl.truststore.location={self.ca}",
                    f"{head}.ssl.client.auth={'required' if name == 'MUTUAL' else 'none'}",
                ]  # fmt: skip
            if kind == "SASL_SSL":
                module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                lines += [f"{head}.{each}.sasl.jaas.config={module}" for each in ("scram-sha-256", "scram-sha-512")]
                lines.append(f"{head}.sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512")
        return "\n".join(lines) + "\n"
