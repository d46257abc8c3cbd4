"""The declared topics as plans to create."""

from pipeline.agents.broker import TopicPlan
from schemas.topics import TOPICS


def topic_plans() -> list[TopicPlan]:
    """One plan per topic of `schemas.topics`."""
    return [TopicPlan(name=topic.name, partitions=topic.partitions, settings=topic.settings()) for topic in TOPICS]
