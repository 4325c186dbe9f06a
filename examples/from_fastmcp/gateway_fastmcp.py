# mypy: disable-error-code="import-not-found,untyped-decorator,misc"
"""A gateway on FastMCP: tools from an OpenAPI document, a transformed tool, and a proxy that is mounted.

Limpet has none of the three, so this object stays as it is:

limpet serve examples/from_fastmcp/gateway_fastmcp.py:mcp
"""

import httpx2
from fastmcp import FastMCP
from fastmcp.server import create_proxy
from fastmcp.server.providers.openapi import MCPType, RouteMap
from fastmcp.server.transforms import ToolTransform
from fastmcp.tools.tool_transform import ArgTransformConfig, ToolTransformConfig
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

PARCELS = {1: {"id": 1, "place": "Bergen"}, 2: {"id": 2, "place": "Cairo"}}


async def one(request: Request) -> JSONResponse:
    found = PARCELS.get(int(request.path_params["parcel"]))
    return JSONResponse(found or {"detail": "no such parcel"}, 200 if found else 404)


async def move(request: Request) -> JSONResponse:
    moved = {"id": int(request.path_params["parcel"]), "place": (await request.json())["place"]}
    return JSONResponse(moved)


async def depots(_request: Request) -> JSONResponse:
    return JSONResponse(["Bergen", "Cairo"])


# The REST interface. It runs in this process, so that the example needs no network.
api = Starlette(
    routes=[
        Route("/parcels/{parcel:int}", one),
        Route("/parcels/{parcel:int}/move", move, methods=["POST"]),
        Route("/depots", depots),
    ]
)

PARCEL = {"name": "parcel", "in": "path", "required": True, "schema": {"type": "integer"}}
SHOWN = {"type": "object", "properties": {"id": {"type": "integer"}, "place": {"type": "string"}}}
SPEC = {
    "openapi": "3.1.0",
    "info": {"title": "parcels", "version": "1"},
    "paths": {
        "/parcels/{parcel}": {
            "get": {
                "operationId": "find_parcel",
                "summary": "Find a parcel.",
                "parameters": [PARCEL],
                "responses": {
                    "200": {"description": "found", "content": {"application/json": {"schema": SHOWN}}}
                },
            }
        },
        "/parcels/{parcel}/move": {
            "post": {
                "operationId": "move_parcel",
                "summary": "Move a parcel.",
                "parameters": [PARCEL],
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/json": {
                            "schema": {
                                "type": "object",
                                "properties": {"place": {"type": "string"}},
                                "required": ["place"],
                            }
                        }
                    },
                },
                "responses": {
                    "200": {"description": "moved", "content": {"application/json": {"schema": SHOWN}}}
                },
            }
        },
        "/depots": {
            "get": {
                "operationId": "depots",
                "summary": "All depots.",
                "responses": {"200": {"description": "their names"}},
            }
        },
    },
}

client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=api), base_url="http://parcels.example")
mcp = FastMCP.from_openapi(
    SPEC, client=client, name="parcels", route_maps=[RouteMap(pattern=r"/depots$", mcp_type=MCPType.RESOURCE)]
)
mcp.add_transform(
    ToolTransform(
        {"move_parcel": ToolTransformConfig(name="send", arguments={"place": ArgTransformConfig(name="to")})}
    )
)

stamps = FastMCP("stamps")


@stamps.tool
async def postage(grams: int) -> float:
    """Return the postage of a letter."""
    return 0.95 if grams <= 20 else 1.6


@stamps.prompt
async def address(name: str) -> str:
    """Ask for an address."""
    return f"Where does {name} live?"


# The target may be a URL, a command or a configuration as well.
mcp.mount(create_proxy(stamps), namespace="stamps")


if __name__ == "__main__":
    mcp.run(show_banner=False)
