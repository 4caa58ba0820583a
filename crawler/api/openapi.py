"""The description of the API (OpenAPI 3.1), made from the routing table and the types of its handlers."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from crawler.api.call import NoBody, NoQuery
from crawler.api.idempotency import HEADER, KEY_MAX
from crawler.api.problem import MEDIA_TYPE, Problem
from crawler.api.route import JSON, Route
from crawler.frontier.api_tokens import Role
from crawler.version import program_version

TEMPLATE = "#/components/schemas/{name}"
_PROBLEM = {"$ref": "#/components/responses/Problem"}
IDEMPOTENCY = {
    "name": HEADER, "in": "header", "required": False,
    "description": "the same key with the same request has the same answer, for 24 hours",
    "schema": {"type": "string", "minLength": 1, "maxLength": KEY_MAX, "pattern": "^[!-~]+$"},
}  # fmt: skip
STATUSES = {
    Role.READ: (400, 401, 403, 404, 421, 422, 429, 500, 503),
    Role.WRITE: (400, 401, 403, 404, 408, 409, 413, 415, 421, 422, 429, 500, 503, 507),
}


def document(routes: Iterable[Route], root: str = "") -> bytes:
    """The whole description as JSON. `root`: what each path begins with, "" or a path without its last slash."""
    routes = tuple(routes)
    kinds = [kind for route in routes for kind in route.types()[: 3 if route.is_encoded else 2]]
    unique = list(dict.fromkeys([*kinds, Problem]))
    references, components = msgspec.json.schema_components(unique, ref_template=TEMPLATE)
    schemas = dict(zip(unique, references, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas, components)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "crawler",
                "version": program_version(),
                "description": "What a crawl does, and commands to it. Each change needs a token. So does reading, "
                "unless only this machine can connect, no token exists, and nothing tells of a proxy.",
            },
            "servers": [{"url": root or "/"}],
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
                "responses": {
                    "Problem": {"description": "What went wrong", "content": _content(MEDIA_TYPE, schemas[Problem])}
                },
            },
        }
    )


def _operation(route: Route, schemas: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    query, body, answer = route.types()
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    if query is not NoQuery:
        parameters += _parameters(query, components)
    if route.role is Role.WRITE:
        parameters.append(IDEMPOTENCY)
    text = {} if route.media == JSON else {"type": "string"}
    content = _content(route.media, schemas[answer] if route.is_encoded else text)
    responses: dict[str, Any] = {str(status): _PROBLEM for status in STATUSES[route.role]}
    if route.has_effect:
        responses["303"] = {"description": "Done; the dashboard is there"}
    else:
        responses[str(route.status.value)] = {"description": "Done", "content": content}
    operation: dict[str, Any] = {
        "operationId": _identifier(route),
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses,
        "security": [{"token": []}] if route.role is Role.WRITE else [{}, {"token": []}],
    }
    if route.role is Role.WRITE and body is not NoBody:
        bodies = {media: {"schema": schemas[body]} for media in route.body_media}
        operation["requestBody"] = {"required": True, "content": bodies}
    return operation


def _content(media: str, schema: Any) -> dict[str, Any]:
    return {media: {"schema": schema}}


def _identifier(route: Route) -> str:
    words = re.findall(r"\w+", route.path)
    return "_".join([route.method.lower(), *(word for word in words if word != "v1")])


def _parameters(query: Any, components: dict[str, Any]) -> list[dict[str, Any]]:
    """One for each field of the query, whose own schema is no longer needed."""
    schema = components.pop(query.__name__, None) or msgspec.json.schema(query)["$defs"][query.__name__]
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": of_field}
        for name, of_field in schema["properties"].items()
    ]
