"""From a pandas frame to a model that is served and evaluated: python frame_to_model.py [URL]."""

import sys

import celeris
import numpy
import pandas

rng = numpy.random.default_rng(1)
rows = 20_000
clicks = pandas.DataFrame({"visitor": rng.integers(500, size=rows), "article": rng.integers(60, size=rows)})
taste = (clicks.visitor % 3 == clicks.article % 3).to_numpy()
clicks["clicked"] = (rng.random(rows) < numpy.where(taste, 0.4, 0.1)).astype(float)
clicks["time"] = pandas.date_range("2026-01-01", periods=rows, freq="min", tz="UTC")

client = celeris.Client(*sys.argv[1:])
# Without triggers: else the model may be training by itself already when `retrain` below asks for it, which is answered 409.
news = client.create_model("news", loss="logistic", dim=8, policy={"name": "epsilon_greedy", "epsilon": 0.3}, triggers={})
for article in range(60):
    news.set_item(article, {"section": f"section-{article % 3}"})
summary = news.observe_frame(clicks, user="visitor", item="article", label="clicked", timestamp="time", id_prefix="clicks")
job = news.retrain()
print(f"{summary.taken} observations, {job['state']}: {job['gate']['why']}")

for visitor in rng.integers(500, size=2_000).tolist():
    with news.decision(visitor, k=1, exclude_seen=False) as decision:
        shown = int(decision.items[0])
        decision.reward(shown, float(rng.random() < (0.4 if visitor % 3 == shown % 3 else 0.1)))

for policy in ("greedy", "uniform"):
    estimate = news.evaluate_policy(policy)["estimators"]["dr"]
    print(f"{policy}: {estimate['value']:.3f} clicks a request, {estimate['low']:.3f} to {estimate['high']:.3f}")
