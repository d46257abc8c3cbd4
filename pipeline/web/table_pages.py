"""What the tables mean: a page for people, the same as JSON for programs and assistants."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.templating import Jinja2Templates

from pipeline.store.described import described
from pipeline.web.health import Health


@dataclass(frozen=True, kw_only=True)
class TablePages:
    """The routes /tables and /api/tables."""

    health: Callable[[], Health]
    templates: Jinja2Templates

    async def api(self, _: Request) -> Response:
        """GET /api/tables"""
        return Response(msgspec.json.encode(described()), media_type="application/json")

    async def page(self, request: Request) -> Response:
        """GET /tables"""
        context = {"views": described(), "health": self.health()}
        return self.templates.TemplateResponse(request, "tables.html", context)
