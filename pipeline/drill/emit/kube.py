"""What Kubernetes says of a job's pods and nodes: `kubectl get events` and the status of containers."""

from pipeline.drill.fleet import Node
from pipeline.drill.prefixes import iso, utc
from pipeline.drill.story import Story


def event(story: Story, t: float, kind: str, reason: str, thing: str, text: str, tag: str | None = None) -> None:
    """A row of `kubectl get events -A -o custom-columns=…` with the event's own time."""
    at = utc(story.fleet.office, story.ns(t), 0).replace(".", "")
    story.service(None, "events.txt", t, f"{at}   {kind:<8} {reason:<22} {thing:<40} {text}", tag)


def pod_of(story: Story, node: Node) -> str:
    """The pod of a node of the job."""
    return story.fleet.pod(node)


def scheduled(story: Story, t: float) -> None:
    """Which pod went where."""
    for node in story.fleet.nodes:
        pod = pod_of(story, node)
        event(story, t, "Normal", "Scheduled", f"pod/{pod}", f"Successfully assigned ml/{pod} to {node.name}", "place")


def terminated(story: Story, t: float, node: Node, reason: str, code: int, tag: str | None = None) -> None:
    """`kubectl describe pod`, the last state of the container."""
    at = iso(story.fleet.office, story.ns(t), sep="T")
    story.service(None, f"describe-{pod_of(story, node)}.txt", t, "\n".join((
        f"Name:             {pod_of(story, node)}", "Namespace:        ml", f"Node:             {node.name}/{node.ip}",
        "Containers:", "  pytorch:", "    State:          Terminated", f"      Reason:       {reason}",
        f"      Exit Code:    {code}", f"      Finished:     {at}", "    Ready:          False",
    )), tag)  # fmt: skip
