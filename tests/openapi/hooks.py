"""What schemathesis does not know: NDJSON, of which the description has the schema of a line, and names that exist."""

import json

import schemathesis

EXISTING = {"model": "demo", "version": 2, "from": 1, "to": 2}


@schemathesis.serializer("application/x-ndjson")
def write(_context: schemathesis.SerializationContext, line: object) -> bytes:
    return json.dumps(line).encode() + b"\n"


@schemathesis.deserializer("application/x-ndjson")
def read(_context: schemathesis.DeserializationContext, response: schemathesis.Response) -> object:
    return json.loads(response.text.splitlines()[0])


@schemathesis.hook
def before_call(_context: schemathesis.HookContext, case: schemathesis.Case, _kwargs: dict[str, object]) -> None:
    """Replaces valid parameters of the path by such that exist. The model is not deleted, and the key is not revoked."""
    if case.path == "/v1/keys/{key}":
        case.path_parameters["key"] = "none"
        return
    path = next((part for place, part in case.meta.components.items() if place.name == "PATH"), None)
    if path is None or not path.mode.is_positive or case.method == "DELETE" and case.path == "/v1/models/{model}":
        return
    known = EXISTING | ({"item": "1", "user": "7"} if case.method == "GET" else {})
    case.path_parameters |= {name: known[name] for name in case.path_parameters if name in known}
