"""The live feed: what broke, on one page. Starlette, server-rendered, no build, no outside assets."""

from typing import Final

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8088
