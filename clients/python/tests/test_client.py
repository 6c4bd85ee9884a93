from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

import celeris


def observations(model: celeris.Model, user: str) -> int:
    return model.user(user)["observations"]


def test_observations_change_predictions(model: celeris.Model) -> None:
    model.set_item("film", {"genre": "Drama"})
    before = model.predict("u", ["film"])["scores"][0]["score"]
    epochs = [model.observe("u", "film", 1)["user_epoch"] for _ in range(5)]
    after = model.predict("u", ["film"])
    assert epochs == [1, 2, 3, 4, 5]
    assert after["scores"][0]["score"] > before
    assert model.why("u", "film")["observations"] == 5


def test_users_have_the_attributes_that_were_set_last(url: str, model: celeris.Model) -> None:
    model.set_user("ann/1", {"age": 31, "hobby": ["chess", "go"]})
    model.set_user("ann/1", {"age": 32})
    assert model.user("ann/1")["attributes"] == {"age": 32}

    async def run() -> None:
        async with celeris.AsyncClient(url) as client:
            await client.model(model.name).set_user("bob", {"age": 40})

    asyncio.run(run())
    assert model.user("bob")["attributes"] == {"age": 40}
    with pytest.raises(celeris.InvalidRequest, match=r"attributes\.hobby"):
        model.set_user("ann/1", {"hobby": {"name": "chess"}})


def test_a_decision_collects_its_rewards(model: celeris.Model) -> None:
    for item in "abc":
        model.set_item(item, {"kind": "film"})
    with model.decision("u", k=2) as decision:
        assert len(decision.items) == 2
        decision.reward(decision.items[0], 1)
        decision.reward(decision.items[1], 0)
    recorded = model.client.request("GET", f"/v1/models/{model.name}/decisions/{decision.decision_id}")
    assert [slot["reward"] for slot in recorded["slots"]] == [1.0, 0.0]
    with pytest.raises(ZeroDivisionError), model.decision("u", k=1, items=["a", "b"]) as decision:
        decision.reward(decision.items[0], 1)
        raise ZeroDivisionError
    assert observations(model, "u") == 3


def test_errors_name_the_field_and_what_to_do(client: celeris.Client, model: celeris.Model) -> None:
    with pytest.raises(celeris.InvalidRequest) as refused:
        model.observe("u", "i", 7)
    assert refused.value.errors[0]["pointer"] == "/label"
    assert "from 0 to 1" in refused.value.detail
    with pytest.raises(celeris.NotFound, match="GET /v1/models lists them"):
        client.model("nothing").describe()
    with pytest.raises(celeris.Conflict):
        client.create_model(model.name)
    with pytest.raises(celeris.ConnectionFailed, match="no node answers"):
        celeris.Client("http://127.0.0.1:1", retries=0).models()


class Breaking(httpx.BaseTransport):
    """Loses every second response after the node has answered."""

    def __init__(self) -> None:
        self.inner = httpx.HTTPTransport()
        self.requests = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self.inner.handle_request(request)
        self.requests += 1
        if self.requests % 2 == 1:
            response.read()
            response.close()
            raise httpx.ReadError("the response was lost", request=request)
        return response


def test_a_repeated_request_counts_once(url: str, model: celeris.Model) -> None:
    transport = Breaking()
    with celeris.Client(url, transport=transport) as broken:
        same = broken.model(model.name)
        for _ in range(4):
            same.observe("u", "i", 1)
        summary = same.observe_many({"user": "v", "item": "i", "label": 1} for _ in range(100))
    assert transport.requests == 10
    assert observations(model, "u") == 4
    assert (summary.taken + summary.duplicates, observations(model, "v")) == (100, 100)


def test_lines_that_are_refused_are_named(model: celeris.Model) -> None:
    labels = [1 if place % 1000 else 7 for place in range(12_000)]
    seen: list[int] = []
    rows = ({"user": f"u{place % 50}", "item": "i", "label": label} for place, label in enumerate(labels))
    summary = model.observe_many(rows, progress=seen.append)
    assert summary.taken == 12_000 - 12
    assert [rejected.place for rejected in summary.rejected] == list(range(0, 12_000, 1000))
    assert summary.rejected[0].errors[0]["pointer"] == "/label"
    assert seen == [5000, 10_000, 12_000]
    all_wrong = model.observe_many([{"user": "u", "item": "i", "label": 7}])
    assert (all_wrong.taken, len(all_wrong.rejected)) == (0, 1)


def frame() -> dict[str, list[Any]]:
    times = ["2026-03-01T12:00:00Z", "2026-03-02T12:00:00Z", "2026-03-03T12:00:00Z"]
    return {"who": [1, 2, 1], "what": ["a", "b", "b"], "liked": [1.0, 0.0, 1.0], "at": times, "device": ["phone", None, "tv"]}


@pytest.mark.parametrize("library", ["pandas", "pyarrow"])
def test_rows_of_a_frame_are_observations(model: celeris.Model, library: str) -> None:
    module = pytest.importorskip(library)
    rows: Any = module.DataFrame(frame()) if library == "pandas" else module.table(frame())
    if library == "pandas":
        rows["at"] = module.to_datetime(rows["at"])
    columns: dict[str, Any] = {"user": "who", "item": "what", "label": "liked", "timestamp": "at", "context": ["device"]}
    first = model.observe_frame(rows, id_prefix="march", **columns)
    again = model.observe_frame(rows, id_prefix="march", **columns)
    assert (first.taken, again.taken, again.duplicates) == (3, 0, 3)
    events = model.user("1")["history"]
    assert [event.get("context") for event in events] == [{"device": "tv"}, {"device": "phone"}]
    assert events[0]["timestamp"] == 1_772_539_200_000
    with pytest.raises(KeyError, match="no column nothing"):
        model.observe_frame(rows, user="nothing")


def test_a_version_is_trained_and_serves(model: celeris.Model) -> None:
    model.observe_many({"user": f"u{k % 40}", "item": f"i{k * 7 % 25}", "label": float(k % 3 == 0)} for k in range(2000))
    job = model.retrain()
    assert job["state"] in ("succeeded", "rejected"), job
    assert model.versions()[0]["version"] == 2
    report = model.evaluate_policy("greedy")
    assert report["model"] == model.name


def test_names_of_all_kinds_are_paths(model: celeris.Model) -> None:
    for user in ["a/b", "ü ?#%", "..", "x" * 200]:
        model.observe(user, "i/j", 1)
        assert observations(model, user) == 1


def test_corrections_and_retractions(model: celeris.Model) -> None:
    observed = model.observe("u", "i", 1)
    model.correct(observed["observation_id"], 0)
    model.retract(observed["observation_id"])
    assert observations(model, "u") == 0


def test_the_asynchronous_client_does_the_same(url: str, model: celeris.Model) -> None:
    async def run() -> list[int]:
        async with celeris.AsyncClient(url) as client:
            same = client.model(model.name)
            replies = await asyncio.gather(*(same.observe(f"u{k}", "i", 1) for k in range(20)))
            async with same.decision("u1", k=1, items=["i", "j"]) as decision:
                decision.reward(decision.items[0], 1)
            summary = await same.observe_many({"user": "w", "item": "i", "label": 1} for _ in range(30))
            assert summary.taken == 30
            return [reply["user_epoch"] for reply in replies]

    assert asyncio.run(run()) == [1] * 20
    assert (observations(model, "u1"), observations(model, "w")) == (2, 30)


def test_keys_are_sent_and_refusals_are_errors(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.headers.get("authorization") != "Bearer right":
            return httpx.Response(401, json={"type": "urn:celeris:problem:unauthenticated", "detail": "no key"})
        return httpx.Response(200, json={"models": []})

    transport = httpx.MockTransport(answer)
    assert celeris.Client(api_key="right", transport=transport).models() == []
    monkeypatch.setenv("CELERIS_API_KEY", "right\n")
    assert celeris.Client(transport=transport).models() == []
    with pytest.raises(celeris.NotAllowed, match="unauthenticated"):
        celeris.Client(api_key="wrong", transport=transport).models()
