"""The yardstick: a Faust worker that does nothing but pass messages on, and a producer that does nothing but send."""

import asyncio
import sys

import faust

from pipeline.agents.app import WorkerConfig, make_app

SOURCE, TARGET = "bare.source", "bare.target"


def app(bootstrap: str) -> faust.App:
    """One agent: each message of the source topic goes to the target topic as it is."""
    bare = make_app(WorkerConfig(bootstrap=bootstrap, group="bare"))
    source = bare.topic(SOURCE, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
    target = bare.topic(TARGET, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")

    async def forward(stream: faust.Stream) -> None:
        async for event in stream.events():
            await target.send(key=event.key, value=event.value)

    bare.agent(source)(forward)
    return bare


async def main(bootstrap: str) -> None:
    """Work until the process is ended."""
    bare = app(bootstrap)
    await bare.start()
    await bare.wait_until_stopped()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
