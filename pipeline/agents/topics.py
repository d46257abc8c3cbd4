"""The declared topics as plans to create."""

from pipeline.agents.broker import TopicPlan
from schemas.topics import TOPICS


def topic_plans(brokers: int) -> list[TopicPlan]:
    """One plan per topic of `schemas.topics`. A topic with one partition per broker gets `brokers` of them."""
    return [
        TopicPlan(name=topic.name, partitions=topic.partitions or brokers, settings=topic.settings())
        for topic in TOPICS
    ]
