"""The seat as a Lease of Kubernetes: the one object that this agent may write."""

import datetime
from typing import Any, Final

import orjson

from shippers.control.kube_api import Api, ApiError, ConflictError, ForbiddenError, MissingError
from shippers.control.seat import Held, SeatError, SeatTakenError

POSITIONS: Final = "rootrank/positions"


class LeaseStore:
    """A Lease of `coordination.k8s.io`. That it is still of the version that was read, the server itself checks."""

    def __init__(self, api: Api, namespace: str, name: str, seat_s: float) -> None:
        self._api = api
        self._name = name
        self._namespace = namespace
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._seat_s = seat_s

    def read(self) -> Held:
        """What the Lease says; a free seat where there is none."""
        try:
            shape = self._api.get(f"{self._folder}/{self._name}")
        except MissingError:
            return Held()
        except ApiError as error:
            raise self._refusal(error, "get") from None
        spec, meta = shape.get("spec") or {}, shape.get("metadata") or {}
        return Held(
            holder=str(spec.get("holderIdentity") or ""), version=str(meta.get("resourceVersion") or ""),
            positions=_positions((meta.get("annotations") or {}).get(POSITIONS)),
            changes=changes if isinstance(changes := spec.get("leaseTransitions"), int) else 0,
        )  # fmt: skip

    def write(self, held: Held) -> None:
        """Create the Lease, or put it if nobody did since it was read."""
        now = datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = {
            "holderIdentity": held.holder, "leaseDurationSeconds": max(1, round(self._seat_s)), "renewTime": now,
            "leaseTransitions": held.changes,
        }  # fmt: skip
        annotations = {POSITIONS: orjson.dumps(held.positions).decode()}
        meta: dict[str, Any] = {"name": self._name, "namespace": self._namespace, "annotations": annotations}
        shape = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
        try:
            if held.version:
                meta["resourceVersion"] = held.version
                self._api.send("PUT", f"{self._folder}/{self._name}", shape)
            else:
                self._api.send("POST", self._folder, shape)
        except ConflictError:
            raise SeatTakenError from None
        except ApiError as error:
            raise self._refusal(error, "update" if held.version else "create") from None

    def _refusal(self, error: ApiError, verb: str) -> SeatError:
        if isinstance(error, ForbiddenError):
            return SeatError(
                f"the lease {self._namespace}/{self._name} may not be used ({error}); add to the Role of the agent: "
                f'apiGroups ["coordination.k8s.io"], resources ["leases"], verbs ["{verb}"]'
            )
        return SeatError(f"the lease {self._namespace}/{self._name}: {error}")


def _positions(text: object) -> dict[str, str]:
    """What a holder wrote of its positions; nothing where somebody else wrote it."""
    try:
        shape = orjson.loads(str(text))
    except orjson.JSONDecodeError:
        return {}
    return {str(k): v for k, v in shape.items() if isinstance(v, str)} if isinstance(shape, dict) else {}
