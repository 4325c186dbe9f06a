"""Objects of Kubernetes, checked against its own models: every member exists, has its type, and none that is required is missing."""

import dataclasses
import importlib
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any, Final, Union

_CORE: Final = "lightkube.core"
# The models are data. Their package takes three names from the client that usually comes with them, and which we do not need.
sys.modules.setdefault(_CORE, types.ModuleType(_CORE))
_SCHEMA: Final = types.ModuleType(f"{_CORE}.schema")
vars(_SCHEMA).update(DictMixin=object, field=dataclasses.field, dataclass=dataclasses.dataclass)
sys.modules.setdefault(_SCHEMA.__name__, _SCHEMA)


def faults(item: dict[str, Any]) -> list[str]:
    """Return the faults of an object, each with its place."""
    group, _, version = item["apiVersion"].rpartition("/")
    name = f"lightkube.models.{(group or 'core').partition('.')[0]}_{version}"
    model = getattr(importlib.import_module(name), item["kind"])
    return list(_faults(item, model, item["kind"]))


def _faults(value: Any, kind: Any, place: str) -> Iterator[str]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        tried = [list(_faults(value, one, place)) for one in arguments if one is not type(None)]
        yield from min(tried, key=len)
    elif dataclasses.is_dataclass(kind):
        yield from _members(value, kind, place)
    elif origin is list:
        if not isinstance(value, list):
            yield f"{place} is not a list"
            return
        for number, one in enumerate(value):
            yield from _faults(one, arguments[0], f"{place}[{number}]")
    elif kind is dict or origin is dict:
        if not isinstance(value, dict):
            yield f"{place} is not a map"
    elif kind is not Any and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
        yield f"{place} is {value!r}, and not of the type {kind.__name__}"


def _members(value: Any, model: Any, place: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{place} is not a map"
        return
    kinds = typing.get_type_hints(model)
    fields = {field.metadata.get("json", field.name): field for field in dataclasses.fields(model)}
    for name, one in value.items():
        if name not in fields:
            yield f"{place} has no member {name}"
        elif one is not None:
            yield from _faults(one, kinds[fields[name].name], f"{place}.{name}")
    for name, field in fields.items():
        if field.default is dataclasses.MISSING and name not in value:
            yield f"{place}.{name} is missing"
