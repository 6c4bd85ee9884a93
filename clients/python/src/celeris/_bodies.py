"""Bodies of requests: what the clients share."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from .types import FieldError

DEFAULT_URL = "http://127.0.0.1:7117"

#: The variable with the key, if none is given.
KEY_VARIABLE = "CELERIS_API_KEY"

#: Lines of one request of a stream. The next one is sent when they are answered, so a slow node is not sent more.
LINES_A_REQUEST = 5_000

#: The first wait before a request is repeated, in seconds; doubled after each, up to the longest.
WAIT_FIRST = 0.1
WAIT_MAX = 10.0

#: Statuses after which the same request may succeed.
PASSING = frozenset({429, 502, 503, 504})


@dataclass
class Rejected:
    """A line that a node has refused."""

    #: The place among the observations, from 0.
    place: int
    status: int
    detail: str
    errors: list[FieldError]


@dataclass
class Summary:
    """What became of many observations."""

    taken: int = 0
    duplicates: int = 0
    rejected: list[Rejected] = field(default_factory=list)


def headers_of(api_key: str | None) -> dict[str, str]:
    key = api_key if api_key is not None else os.environ.get(KEY_VARIABLE)
    return {"authorization": f"Bearer {key.strip()}"} if key else {}


def path_of(*steps: object) -> str:
    # Steps of dots would be read as folders.
    quoted = (quote(str(step), safe="") for step in steps)
    return "/v1/" + "/".join(step.replace(".", "%2E") if step in (".", "..") else step for step in quoted)


def given(**values: Any) -> dict[str, Any]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def new_id() -> str:
    return uuid.uuid4().hex


def with_ids(observations: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each with an id, by which a node learns it once however often it is sent."""
    prefix = new_id()
    for place, observation in enumerate(observations):
        body = given(**observation)
        body.setdefault("observation_id", f"{prefix}-{place}")
        yield body


def batches(lines: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    for line in lines:
        batch.append(line)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def encoded(bodies: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
    return (encoder.encode(body).encode() for body in bodies)


def add_replies(summary: Summary, replies: bytes, first: int) -> list[int]:
    """Counts the replies to lines that begin at the place `first`. Returns the places of those to send again."""
    again: list[int] = []
    place = first
    for line in replies.splitlines():
        if line.startswith(b'{"summary"'):
            continue
        if line.startswith(b'{"line"'):
            error = json.loads(line)["error"]
            if error["status"] in PASSING:
                again.append(place)
            else:
                rejected = Rejected(place, error["status"], error.get("detail", ""), error.get("errors", []))
                summary.rejected.append(rejected)
        elif b'"duplicate":true' in line:
            summary.duplicates += 1
        else:
            summary.taken += 1
        place += 1
    return again
