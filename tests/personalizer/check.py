"""Rank, reward and the rest by the SDKs of Azure Personalizer, against a node."""

import json
import random
import sys
import urllib.request

from azure.ai.personalizer import PersonalizerAdministrationClient
from azure.ai.personalizer import PersonalizerClient as PreviewClient
from azure.cognitiveservices.personalizer import PersonalizerClient
from azure.cognitiveservices.personalizer.models import ErrorResponseException, RankableAction, RankRequest
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import HttpResponseError
from msrest.authentication import CognitiveServicesCredentials
from msrest.exceptions import HttpOperationError

URL, ADMIN, KEY = sys.argv[1:]


def call(method: str, path: str, body: object = None) -> dict:
    """Calls the node's own API."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {ADMIN}", "content-type": "application/json"}
    request = urllib.request.Request(URL + path, data, headers, method=method)
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)


def make_model(name: str) -> None:
    call("POST", "/v1/models", {
        "name": name, "dim": 33, "policy": {"name": "epsilon_greedy", "epsilon": 0.2}, "triggers": {},
        "default_reward": {"label": 0, "after_seconds": 600, "slots": 1}})


def refused(error: type[Exception], status: int, action) -> Exception:
    try:
        action()
    except error as refusal:
        code = getattr(refusal, "status_code", None) or refusal.response.status_code
        assert code == status, refusal
        return refusal
    raise AssertionError(f"expected {status}")


def stable() -> None:
    """azure-cognitiveservices-personalizer, version 1.0 of the API."""
    actions = [RankableAction(id=name, features=[{"kind": kind}, {"nutrition": {"calories": calories}}])
               for name, kind, calories in [("pasta", "main", 600), ("salad", "main", 200), ("ice cream", "dessert", 300),
                                            ("juice", "drink", 100)]]
    client = PersonalizerClient(URL, CognitiveServicesCredentials(KEY))
    # A slash at the end of the endpoint, as the portal shows it.
    PersonalizerClient(f"{URL}/", CognitiveServicesCredentials(KEY)).rank(rank_request=RankRequest(actions=actions))
    chosen = []
    for number in range(200):
        ranked = client.rank(rank_request=RankRequest(
            actions=actions, event_id=f"event {number}", excluded_actions=["juice"],
            context_features=[{"timeOfDay": random.choice(["morning", "evening"])}, {"user": {"plan": "free"}}]))
        assert ranked.event_id == f"event {number}"
        assert ranked.reward_action_id == ranked.ranking[0].id
        assert abs(sum(action.probability for action in ranked.ranking) - 1) < 1e-5
        assert [action.probability for action in ranked.ranking if action.id == "juice"] == [0]
        client.events.reward(event_id=ranked.event_id, value=1.0 if ranked.reward_action_id == "salad" else 0.0)
        chosen.append(ranked.reward_action_id)
    late = chosen[100:]
    assert late.count("salad") > 70, late  # 87 are expected, with a standard deviation of 3
    ranked = client.rank(rank_request=RankRequest(actions=actions, defer_activation=True))
    client.events.activate(event_id=ranked.event_id)
    client.events.reward(ranked.event_id, 0.5)
    refusal = refused(ErrorResponseException, 400, lambda: client.rank(rank_request=RankRequest(actions=[])))
    assert refusal.error.error.code == "BadRequest" and "actions" in refusal.error.error.message, refusal.error
    refused(HttpOperationError, 400, lambda: client.events.reward(ranked.event_id, 2.0))
    refused(HttpOperationError, 404, lambda: client.events.reward("nothing", 1.0))
    wrong = PersonalizerClient(URL, CognitiveServicesCredentials("wrong"))
    refused(ErrorResponseException, 401, lambda: wrong.rank(rank_request=RankRequest(actions=actions)))


def preview() -> None:
    """azure-ai-personalizer, version 2022-09-01-preview, against a model that the endpoint names."""
    endpoint = f"{URL}/v1/models/other"
    client = PreviewClient(endpoint, AzureKeyCredential(KEY))
    actions = [{"id": name, "features": [{"topic": name}]} for name in ["news", "arts", "sport"]]
    ranked = client.rank({"actions": actions, "contextFeatures": [{"device": "phone"}], "eventId": "one"})
    assert ranked["rewardActionId"] == ranked["ranking"][0]["id"]
    client.reward("one", {"value": 1.0})
    client.activate("one")
    slots = [{"id": "top", "baselineAction": "news", "features": [{"size": "large"}]},
             {"id": "side", "baselineAction": "arts", "excludedActions": ["sport"]}]
    ranked = client.rank_multi_slot({"actions": actions, "slots": slots, "eventId": "several"})
    assert [slot["id"] for slot in ranked["slots"]] == ["top", "side"]
    client.activate_multi_slot("several")
    client.reward_multi_slot("several", {"reward": [{"slotId": "top", "value": 0.5}]})
    refused(HttpResponseError, 400, lambda: client.reward_multi_slot("several", {"reward": [{"slotId": "no", "value": 1}]}))
    admin = PersonalizerAdministrationClient(endpoint, AzureKeyCredential(ADMIN))
    settings = admin.get_service_configuration()
    assert settings["rewardWaitTime"] == "PT10M" and settings["explorationPercentage"] == 0.2, settings
    settings["explorationPercentage"] = 0.1
    assert admin.update_service_configuration(settings) == settings
    assert call("GET", "/v1/models/other")["policy"]["epsilon"] == 0.1
    refused(HttpResponseError, 501, admin.get_policy)


random.seed(1)
make_model("home")
make_model("other")
stable()
preview()
print("the SDKs of Azure Personalizer rank and reward")
