"""Resources and resource templates: list them, read them."""

from collections.abc import AsyncIterator

from limpet.client.base import Requester
from limpet.client.paging import Pages
from limpet.client.results import typed
from limpet.protocol.content import ResourceContents
from limpet.protocol.listing import Resource, ResourceTemplate
from limpet.protocol.results import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
)


class Resources(Requester):
    """A client's resources."""

    async def list_resources(self, *, fresh: bool = False) -> list[Resource]:
        """Return every resource, over all pages."""
        return [resource async for resource in self.resources(fresh=fresh)]

    async def resources(self, *, fresh: bool = False) -> AsyncIterator[Resource]:
        """Yield every resource, requesting the next page when it is needed."""
        async for page in Pages(self, "resources/list", ListResourcesResult, fresh=fresh):
            for resource in page.resources:
                yield resource

    async def list_resource_templates(self, *, fresh: bool = False) -> list[ResourceTemplate]:
        """Return every resource template, over all pages."""
        return [template async for template in self.resource_templates(fresh=fresh)]

    async def resource_templates(self, *, fresh: bool = False) -> AsyncIterator[ResourceTemplate]:
        """Yield every resource template, requesting the next page when it is needed."""
        pages = Pages(self, "resources/templates/list", ListResourceTemplatesResult, fresh=fresh)
        async for page in pages:
            for template in page.resource_templates:
                yield template

    async def read_resource(
        self, uri: str, *, timeout: float | None = None, fresh: bool = False
    ) -> list[ResourceContents]:
        """Return a resource's contents."""
        result = await self.request("resources/read", {"uri": uri}, timeout=timeout, fresh=fresh)
        return typed(result, ReadResourceResult, "resources/read").contents
