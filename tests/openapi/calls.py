"""A page of ordinary calls by the client that openapi-python-client generates, run against a demo node.

`mypy --strict` checks it before it runs.
"""

import json
import sys
from datetime import datetime, timezone

from celeris_client import Client
from celeris_client.api.items import get_item, list_items, put_item
from celeris_client.api.models import change_model, get_model
from celeris_client.api.serving import observe, predict, recommend, topk
from celeris_client.api.users import get_user
from celeris_client.api.versions import get_job, list_versions, retrain
from celeris_client.models import (
    Accepted,
    EqFilter,
    ExistsFilter,
    Filter,
    Gate,
    Item,
    ItemBody,
    ItemBodyAttributesType0,
    ItemChanged,
    ItemPage,
    Job,
    LinesSummary,
    Model,
    ModelChange,
    ObserveBody,
    ObserveReply,
    PolicyName,
    PredictBody,
    PredictReply,
    Problem,
    RecommendBody,
    RecommendReply,
    RetrainBody,
    SeenRuleBody,
    ThompsonPolicy,
    ThompsonPolicyName,
    TopkBody,
    TopkReply,
    TriggersChange,
    User,
    VersionList,
    VolumeTrigger,
)

MODEL = "demo"
client = Client(base_url=sys.argv[1])

predicted = predict.sync(MODEL, client=client, body=PredictBody(user="7", items=["1", "2", 3]))
assert isinstance(predicted, PredictReply), predicted
assert len([score.score for score in predicted.scores]) == 3

thompson = ThompsonPolicy(name=ThompsonPolicyName.THOMPSON, alpha=0.5)
ranked = topk.sync(MODEL, client=client, body=TopkBody(user="7", items=["1", "2", "3"], k=2, policy=thompson, seed=1))
assert isinstance(ranked, TopkReply) and isinstance(ranked.policy, ThompsonPolicy), ranked
by_name = topk.sync(MODEL, client=client, body=TopkBody(user="7", items=["1", "2"], k=1, policy=PolicyName.GREEDY))
assert isinstance(by_name, TopkReply), by_name

not_war = Filter(not_=Filter(eq=EqFilter(field="genres", value="War")))
described = Filter(all_=[Filter(exists=ExistsFilter(field="title")), not_war])
rule = SeenRuleBody(window="30d", feedback=["rating"])
recommended = recommend.sync(
    MODEL, client=client, body=RecommendBody(user="7", k=5, exclude_seen=rule, filter_=described)
)
assert isinstance(recommended, RecommendReply) and recommended.items, recommended

observed = observe.sync(
    MODEL,
    client=client,
    body=ObserveBody(
        user="7",
        item=recommended.items[0].item,
        label=4.0,
        timestamp=datetime.now(timezone.utc),
        decision_id=recommended.decision_id,
    ),
)
assert isinstance(observed, ObserveReply) and observed.joined == "slot", observed

lines = [
    ObserveBody(user="8", item="1", label=4.5, timestamp=1767323045000),
    ObserveBody(user="8", item=2, label=2.0, weight=0.5, feedback="rating"),
]
streamed = client.get_httpx_client().post(
    f"/v1/models/{MODEL}/observations",
    content="".join(json.dumps(line.to_dict()) + "\n" for line in lines),
    headers={"content-type": "application/x-ndjson"},
)
*replies, last = [json.loads(line) for line in streamed.text.splitlines()]
assert ObserveReply.from_dict(replies[-1]).user_epoch > 0
assert LinesSummary.from_dict(last).summary.taken == 2, last

attributes = ItemBodyAttributesType0.from_dict({"title": "A film", "year": 1950, "genres": ["Drama"], "seen": False})
changed = put_item.sync(MODEL, "py-film", client=client, body=ItemBody(attributes=attributes))
assert isinstance(changed, ItemChanged) and changed.effective == "now", changed
item = get_item.sync(MODEL, "py-film", client=client)
assert isinstance(item, Item) and item.attributes, item
found = list_items.sync(MODEL, client=client, q="A film", limit=10)
assert isinstance(found, ItemPage) and found.items[0].attributes["year"] == 1950, found

triggers = TriggersChange(volume=VolumeTrigger(observations=100_000), drift=None)
model = change_model.sync(
    MODEL, client=client, body=ModelChange(gate=Gate(margin=0.01, force=True), triggers=triggers)
)
assert isinstance(model, Model) and model.loss == "squared" and model.gate.force, model

accepted = retrain.sync(MODEL, client=client, body=RetrainBody(why="a page of calls"))
assert isinstance(accepted, Accepted), accepted
job = get_job.sync(accepted.job, client=client)
assert isinstance(job, Job) and job.state in ("queued", "running", "succeeded", "rejected"), job
versions = list_versions.sync(MODEL, client=client)
assert isinstance(versions, VersionList) and versions.versions, versions

user = get_user.sync(MODEL, "8", client=client, history=10)
assert isinstance(user, User) and {event.label for event in user.history} >= {4.5, 2.0}, user

missing = get_model.sync("missing", client=client)
assert isinstance(missing, Problem) and missing.status == 404, missing
print(f"{len(versions.versions)} versions, {len(user.history)} events of user 8, job {job.state}")
