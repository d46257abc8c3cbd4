"""The network part of a kafka-python consumer, closed without a race.

kafka-python 3.0 closes connections on the thread that calls `close()` while its own thread still works on them. With a
broker away that now and then raises AssertionError and leaves a socket open.
"""

import logging
from typing import Final

from kafka.net.compat import KafkaNetClient

log: Final = logging.getLogger(__name__)


class KafkaClient(KafkaNetClient):  # type: ignore[misc]  # the library has no types
    """Give it to a consumer as `kafka_client`: connections are closed where they are used, then the thread ends."""

    def close(self, node_id: int | None = None) -> None:
        """Close one connection, or all and the thread. Safe to call twice."""
        if node_id is None and not self._manager.closed:
            try:
                self._net.run(self._manager.close)
                self._net.stop()
            except Exception as error:  # a loop that has died raises what it died of; nobody else is at work then
                log.debug("the Kafka loop had ended already: %s", error)
        super().close(node_id)
