"""How the parts of the pipeline log in to Kafka, for each of the client libraries that they use.

One place: the variables KAFKA_SECURITY_PROTOCOL, KAFKA_SSL_CAFILE, … (`schemas.kafka_access.Access`), with secrets in
files. The files are read when a client is made, so a password that was changed counts with the next one.
"""

import os
from typing import Any

from schemas.kafka_access import NOTHING_LISTENS, Access, from_environment, problem_at


def access() -> Access:
    """What the environment says. Raises AccessError."""
    return from_environment(os.environ)


def client_options(access: Access) -> dict[str, Any]:
    """Options for a client of kafka-python or aiokafka, which call them alike. Raises AccessError."""
    options: dict[str, Any] = {"security_protocol": access.security_protocol}
    if access.uses_tls:
        options["ssl_context"] = access.context()
    if access.logs_in:
        options |= {
            "sasl_mechanism": access.sasl_mechanism, "sasl_plain_username": access.sasl_username,
            "sasl_plain_password": access.password(),
        }  # fmt: skip
    return options


def faust_credentials(access: Access) -> Any:
    """The same for a Faust app; None where nothing is asked for. Raises AccessError."""
    from faust.auth import SASLCredentials, SSLCredentials

    context = access.context() if access.uses_tls else None
    if access.logs_in:
        return SASLCredentials(
            username=access.sasl_username, password=access.password(), ssl_context=context,
            mechanism=access.sasl_mechanism,
        )  # fmt: skip
    return SSLCredentials(context) if context is not None else None


def refusal(bootstrap: str, access: Access) -> str:
    """Why none of these brokers lets us in, and what to do; empty where one does. Takes seconds."""
    problems = [problem_at(server.strip(), access) for server in bootstrap.split(",") if server.strip()]
    if not problems or not all(problems):
        return ""
    return next((each for each in problems if each != NOTHING_LISTENS), NOTHING_LISTENS)


def shipper_settings(access: Access) -> dict[str, str]:
    """What differs from the defaults, by the names of `[kafka]` of the node agent."""
    plain = Access()
    return {
        name: getattr(access, name)
        for name in Access.__struct_fields__
        if getattr(access, name) != getattr(plain, name)
    }
