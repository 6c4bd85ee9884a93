"""Errors of a node, by the status of its problem details (RFC 9457)."""

from __future__ import annotations

import httpx

from .types import FieldError


class CelerisError(Exception):
    """A request that was not carried out, or whose outcome is not known."""


class ConnectionFailed(CelerisError):
    """No node has answered. A change may or may not have been made."""


class ApiError(CelerisError):
    """A node has refused a request.

    `status` is the HTTP status, `kind` the last part of the problem's type such as `invalid-field`, `detail` what is wrong and
    what to do, and `errors` the fields that are wrong, each with a JSON pointer. By `request_id` the request is found in the log
    of the node.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        errors: list[FieldError],
        retry_after: float | None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(f"{status} {kind}: {detail}")
        self.status = status
        self.kind = kind
        self.detail = detail
        self.errors = errors
        self.retry_after = retry_after
        self.request_id = request_id


class InvalidRequest(ApiError):
    """400, 413, 415, 422: the request is wrong; `errors` name the fields."""


class NotAllowed(ApiError):
    """401, 403: there is no valid key, or it is not for this."""


class NotFound(ApiError):
    """404: there is no such model, item or other resource."""


class Conflict(ApiError):
    """409, 410: the request conflicts with what there is."""


class RateLimited(ApiError):
    """429: the key has used what it may for now; `retry_after` is in seconds."""


class Unavailable(ApiError):
    """5xx: the node cannot answer now, or has failed."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidRequest,
    413: InvalidRequest,
    415: InvalidRequest,
    422: InvalidRequest,
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    410: Conflict,
    429: RateLimited,
}


def error_of(response: httpx.Response) -> ApiError:
    """The error of a response that is none of success, whose body was read."""
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    kind = str(problem.get("type", "")).rsplit(":", 1)[-1] or "http-error"
    detail = str(problem.get("detail") or response.reason_phrase)
    default = Unavailable if response.status_code >= 500 else ApiError
    of_status = _BY_STATUS.get(response.status_code, default)
    request_id = response.headers.get("x-request-id")
    return of_status(response.status_code, kind, detail, problem.get("errors", []), retry_after_of(response), request_id)


def retry_after_of(response: httpx.Response) -> float | None:
    """The seconds after which to try again, if the node names them."""
    try:
        return float(response.headers["retry-after"])
    except (KeyError, ValueError):
        return None
