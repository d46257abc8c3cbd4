"""rootrank's pipeline: a pure core and thin adapters around it."""

from typing import Final

VERSION: Final = "0.1.0"
