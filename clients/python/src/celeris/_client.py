"""The client. Made of `_async_client.py` by `generate.py`; do not edit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, cast

import httpx

from . import _bodies as bodies
from . import _frames as frames
from . import types as t
from ._bodies import Summary, given, path_of
from .errors import ConnectionFailed, Unavailable, error_of, retry_after_of


class Client:
    """A node, or a cluster by any of its nodes.

    `api_key` is a key or a token; by default that of the variable CELERIS_API_KEY. Requests are repeated up to `retries` times
    while the node cannot answer: observations have ids that this client makes, so none counts twice.
    """

    def __init__(
        self,
        url: str = bodies.DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout: float = 30.0,
        retries: int = 5,
        verify: Any = True,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._retries = retries
        self._http = httpx.Client(
            base_url=url, headers=bodies.headers_of(api_key), timeout=timeout, verify=verify, transport=transport
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def model(self, name: str) -> Model:
        """The model or selection of this name, which need not exist yet."""
        return Model(self, name)

    def models(self) -> list[t.ModelOrSelection]:
        """All models and selections."""
        reply = self.request("GET", path_of("models"))
        return cast("list[t.ModelOrSelection]", reply["models"])

    def create_model(self, name: str, **settings: Any) -> Model:
        """Creates a model; `settings` are those of `POST /v1/models`."""
        self.request("POST", path_of("models"), {"name": name, **settings}, repeat=False)
        return self.model(name)

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        repeat: bool = True,
    ) -> Any:
        """Sends a request of the API and returns its reply. `repeat` says whether it may be sent again although it may have been
        carried out.
        """
        response = self._patiently(
            lambda: self._http.request(method, path, json=body, params=params), repeat=repeat
        )
        if not response.is_success:
            raise error_of(response)
        return response.json() if response.content else None

    def _patiently(self, send: Callable[[], Any], *, repeat: bool) -> httpx.Response:
        wait = bodies.WAIT_FIRST
        for attempt in range(self._retries + 1):
            is_last = attempt == self._retries
            try:
                response = cast("httpx.Response", send())
            except httpx.ConnectError as error:
                if is_last:
                    raise ConnectionFailed(f"no node answers at {self._http.base_url}: {error}") from error
            except httpx.TransportError as error:
                if is_last or not repeat:
                    raise ConnectionFailed(f"the connection to {self._http.base_url} broke: {error}") from error
            else:
                may_be_done = response.status_code == 504 or b"unknown-fate" in response.content
                is_passing = response.status_code in bodies.PASSING and not is_of_lines(response)
                if is_last or not is_passing or (may_be_done and not repeat):
                    return response
                wait = max(wait, retry_after_of(response) or 0.0)
            time.sleep(min(wait, bodies.WAIT_MAX))
            wait *= 2
        raise AssertionError("the last attempt returns or raises")


def is_of_lines(response: httpx.Response) -> bool:
    return bool(response.headers.get("content-type", "").startswith("application/x-ndjson"))


class Model:
    """A model or selection of a node."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name

    def _post(self, call: str, body: Mapping[str, Any]) -> Any:
        return self.client.request("POST", path_of("models", self.name, call), body)

    def describe(self) -> t.Model:
        """Its settings and state."""
        return cast("t.Model", self.client.request("GET", path_of("models", self.name)))

    def predict(
        self, user: t.IdOrInteger, items: Sequence[t.IdOrInteger], *, context: t.ContextFields | None = None, **options: Any
    ) -> t.PredictReply:
        """Scores items for a user, with their uncertainty."""
        body = given(user=user, items=items, context=context, **options)
        return cast("t.PredictReply", self._post("predict", body))

    def topk(
        self,
        user: t.IdOrInteger,
        items: Sequence[t.IdOrInteger],
        k: int,
        *,
        policy: t.PolicyOrName | None = None,
        context: t.ContextFields | None = None,
        **options: Any,
    ) -> t.TopkReply:
        """Ranks these items for a user."""
        body = given(user=user, items=items, k=k, policy=policy, context=context, **options)
        return cast("t.TopkReply", self._post("topk", body))

    def recommend(
        self,
        user: t.IdOrInteger | None = None,
        *,
        k: int,
        policy: t.PolicyOrName | None = None,
        filter: t.Filter | None = None,
        context: t.ContextFields | None = None,
        **options: Any,
    ) -> t.RecommendReply:
        """Recommends items of the whole catalog."""
        body = given(user=user, k=k, policy=policy, filter=filter, context=context, **options)
        return cast("t.RecommendReply", self._post("recommend", body))

    def observe(
        self,
        user: t.IdOrInteger,
        item: t.IdOrInteger,
        label: float,
        *,
        observation_id: str | None = None,
        timestamp: t.Time | None = None,
        weight: float | None = None,
        feedback: str | None = None,
        decision_id: str | None = None,
        context: t.ContextFields | None = None,
    ) -> t.ObserveReply:
        """Learns from one observation, which is on disk when this returns."""
        body = given(
            user=user,
            item=item,
            label=label,
            observation_id=observation_id or bodies.new_id(),
            timestamp=timestamp,
            weight=weight,
            feedback=feedback,
            decision_id=decision_id,
            context=context,
        )
        return cast("t.ObserveReply", self._post("observe", body))

    def observe_many(
        self, observations: Iterable[Mapping[str, Any]], *, progress: Callable[[int], None] | None = None
    ) -> Summary:
        """Learns from many observations, dictionaries with the arguments of :meth:`observe`. The next are sent when those before are
        on disk. `progress` is called with the number that was answered.
        """
        return self._send_lines(bodies.encoded(bodies.with_ids(observations)), progress)

    def observe_frame(
        self,
        frame: Any,
        *,
        user: str = "user",
        item: str = "item",
        label: str = "label",
        timestamp: str | None = None,
        weight: str | None = None,
        context: Sequence[str] = (),
        id_prefix: str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Summary:
        """Learns from the rows of a pandas data frame or an Arrow table, whose columns these are. With an `id_prefix`, rows are named by
        it and their places: sending the same frame again counts nothing twice.
        """
        columns = frames.Columns(user, item, label, timestamp, weight, tuple(context))
        return self._send_lines(frames.lines(frame, columns, id_prefix or bodies.new_id()), progress)

    def _send_lines(self, lines: Iterable[bytes], progress: Callable[[int], None] | None) -> Summary:
        summary = Summary()
        answered = 0
        for batch in bodies.batches(lines, bodies.LINES_A_REQUEST):
            self._send_batch(batch, answered, summary)
            answered += len(batch)
            if progress is not None:
                progress(answered)
        return summary

    def _send_batch(self, batch: list[bytes], first: int, summary: Summary) -> None:
        path = path_of("models", self.name, "observations")
        headers = {"content-type": "application/x-ndjson"}
        places = list(range(len(batch)))
        wait = bodies.WAIT_FIRST
        for _ in range(self.client._retries + 1):
            content = b"\n".join([batch[place] for place in places])
            response = self.client._patiently(
                lambda: self.client._http.request("POST", path, content=content, headers=headers), repeat=True
            )
            if not is_of_lines(response):
                raise error_of(response)
            counted = len(summary.rejected)
            again = bodies.add_replies(summary, response.content, 0)
            for rejected in summary.rejected[counted:]:
                rejected.place = first + places[rejected.place]
            if not again:
                return
            places = [places[place] for place in again]
            time.sleep(min(wait, bodies.WAIT_MAX))
            wait *= 2
        raise Unavailable(503, "unavailable", f"{len(places)} observations were not taken; send them again", [], None)

    @contextmanager
    def decision(
        self, user: t.IdOrInteger, *, k: int, items: Sequence[t.IdOrInteger] | None = None, **options: Any
    ) -> Iterator[Decision]:
        """A ranking of these items, or of the whole catalog, and the rewards for what it shows: what :meth:`Decision.reward` was
        called with is sent at the end of the block, also after an error within.
        """
        reply: t.TopkReply | t.RecommendReply
        if items is None:
            reply = self.recommend(user, k=k, **options)
        else:
            reply = self.topk(user, items, k, **options)
        decision = Decision(user, reply)
        try:
            yield decision
        finally:
            if decision.rewards:
                self.observe_many(decision.rewards)

    def correct(self, observation_id: str, label: float, *, user: t.IdOrInteger | None = None) -> None:
        """Replaces the label of an observation."""
        path = path_of("models", self.name, "observations", observation_id)
        self.client.request("PUT", path, {"label": label}, params=given(user=user))

    def retract(self, observation_id: str, *, user: t.IdOrInteger | None = None) -> None:
        """Deletes an observation, as if it had not been made."""
        path = path_of("models", self.name, "observations", observation_id)
        self.client.request("DELETE", path, params=given(user=user))

    def set_item(self, item: t.IdOrInteger, attributes: Mapping[str, Any]) -> None:
        """Sets the attributes of an item."""
        self.client.request("PUT", path_of("models", self.name, "items", item), {"attributes": attributes})

    def delete_item(self, item: t.IdOrInteger) -> None:
        """Takes an item out of recommendations."""
        self.client.request("DELETE", path_of("models", self.name, "items", item))

    def set_user(self, user: t.IdOrInteger, attributes: Mapping[str, Any]) -> None:
        """Sets the attributes of a user, in place of earlier ones."""
        self.client.request("PUT", path_of("models", self.name, "users", user), {"attributes": attributes})

    def user(self, user: t.IdOrInteger, *, history: int = 10) -> t.User:
        """What is stored of a user."""
        path = path_of("models", self.name, "users", user)
        return cast("t.User", self.client.request("GET", path, params={"history": history}))

    def why(self, user: t.IdOrInteger, item: t.IdOrInteger, *, context: t.ContextFields | None = None) -> t.WhyReply:
        """The observations that a score comes from."""
        params = {} if context is None else {"context": next(bodies.encoded([context])).decode()}
        path = path_of("models", self.name, "users", user, "why", item)
        return cast("t.WhyReply", self.client.request("GET", path, params=params))

    def versions(self) -> list[t.Version]:
        """All versions, newest first."""
        reply = self.client.request("GET", path_of("models", self.name, "versions"))
        return cast("list[t.Version]", reply["versions"])

    def evaluate_policy(self, policy: t.PolicyOrUniform, **options: Any) -> t.EvaluateReply:
        """Estimates what a policy would have earned on the recorded decisions."""
        return cast("t.EvaluateReply", self._post("evaluate-policy", given(policy=policy, **options)))

    def retrain(self, *, wait: bool = True, poll: float = 0.25, **options: Any) -> t.Job:
        """Trains a version. Unless `wait` is false, returns when the job has ended; its `state` says how."""
        path = path_of("models", self.name, "retrain")
        accepted = self.client.request("POST", path, options, repeat=False)
        job_path = path_of("jobs", accepted["job"])
        while True:
            job = cast("t.Job", self.client.request("GET", job_path))
            if not wait or job["state"] not in ("queued", "running"):
                return job
            time.sleep(poll)

    def delete(self) -> None:
        """Deletes the model with its versions. The observations of its stream stay."""
        self.client.request("DELETE", path_of("models", self.name), repeat=False)


class Decision:
    """A ranking that was shown, and the rewards for it."""

    def __init__(self, user: t.IdOrInteger, reply: t.TopkReply | t.RecommendReply) -> None:
        self.user = user
        self.reply = reply
        self.rewards: list[dict[str, Any]] = []

    @property
    def decision_id(self) -> str:
        """By which observations name the decision."""
        return self.reply["decision_id"]

    @property
    def items(self) -> list[str]:
        """The ids of the items, in the order of the ranking."""
        return [slot["item"] for slot in self.reply["items"]]

    def reward(self, item: t.IdOrInteger, label: float, **options: Any) -> None:
        """Notes the outcome of an item that was shown."""
        reward = {"user": self.user, "item": item, "label": label, "decision_id": self.decision_id, **options}
        self.rewards.append(reward)


