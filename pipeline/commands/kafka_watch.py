"""Says on behalf of a command that waits for Kafka why it waits, once, and once when that is over."""

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from pipeline.kafka_access import access, client_options, refusal
from schemas.kafka_access import NO_ANSWER, NOTHING_LISTENS, AccessError
from schemas.topics import RAW

AWAY_PAUSE_S: Final = 1.0
FINE_PAUSE_S: Final = 5.0
ANSWER_MS: Final = 3_000
STARTING_S: Final = 10.0


class KafkaWatch:
    """Asks Kafka in a thread of its own, from `with` to its end; `say` gets one sentence at each change."""

    def __init__(self, bootstrap: str, say: Callable[[str], None], topic: str = RAW.name) -> None:
        self._bootstrap = bootstrap
        self._say = say
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafka watch", daemon=True)

    def __enter__(self) -> Self:
        # The library reports each retry; we say once that Kafka is away.
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()

    def _run(self) -> None:
        said = ""
        while not self._stop.is_set():
            problem = kafka_problem(self._bootstrap, self._topic)
            if self._stop.is_set():
                return
            if problem and problem != said:
                self._say(f"{problem}; waiting for it")
            elif said and not problem:
                self._say(f"Kafka at {self._bootstrap} answers; going on")
            said = problem
            self._stop.wait(AWAY_PAUSE_S if problem else FINE_PAUSE_S)


def lasting_problem(bootstrap: str, topic: str, within_s: float = STARTING_S) -> str:
    """Like `kafka_problem`, for a command that asks once: what is still being started has some seconds to come up."""
    deadline = time.monotonic() + within_s
    while (problem := kafka_problem(bootstrap, topic)) and time.monotonic() < deadline:
        time.sleep(AWAY_PAUSE_S)
    return problem


def kafka_problem(bootstrap: str, topic: str) -> str:
    """Why nothing can be sent to this topic and what to do; empty where it can. Takes some seconds at most."""
    try:
        admin = KafkaAdminClient(
            bootstrap_servers=[each.strip() for each in bootstrap.split(",")],
            bootstrap_timeout_ms=ANSWER_MS, request_timeout_ms=ANSWER_MS, **client_options(access()),
        )  # fmt: skip
        try:
            topics = admin.list_topics()
        finally:
            admin.close()
    except AccessError as error:
        return f"Kafka at {bootstrap}: {error}"
    except (KafkaError, OSError, ValueError):
        if (why := refusal(bootstrap, access())) not in ("", NOTHING_LISTENS, NO_ANSWER):
            return f"Kafka at {bootstrap} does not let us in: {why}"
        return (
            f"Kafka at {bootstrap} does not answer (start it, or `rootrank up` which brings its own, "
            "or give --kafka or KAFKA_BOOTSTRAP)"
        )
    if topic not in topics:
        return f"Kafka at {bootstrap} has no topic {topic} yet (start `rootrank worker`, which creates it)"
    return ""
