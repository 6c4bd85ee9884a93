"""Writes invented feedback as JSON lines: 400 users, 90 articles or songs of three topics, a taste for one topic each.

    python3 docs/examples/feedback.py items  > items.ndjson     # attributes, for POST …/items
    python3 docs/examples/feedback.py clicks > clicks.ndjson    # what was shown: 1 if clicked, 0 if not
    python3 docs/examples/feedback.py plays  > plays.ndjson     # how often a song was played; only what was played

The lines of `clicks` and `plays` are for POST …/observations. User u1 likes sport, u2 politics, u3 science, u4 sport, and
so on. Equal commands write equal lines.
"""

import json
import random
import sys

TOPICS = ["science", "sport", "politics"]
USERS, ITEMS, SHOWN = 400, 90, 40


def feedback(kind):
    chance = random.Random(1)
    start = 1_790_000_000_000  # September 2026, in milliseconds
    for user in range(1, USERS + 1):
        for number, item in enumerate(chance.sample(range(ITEMS), SHOWN)):
            liked = item % 3 == user % 3
            quality = 0.5 + item // 3 / 30
            line = {"user": f"u{user}", "item": f"i{item}", "timestamp": start + 60_000 * (number * USERS + user)}
            if kind == "clicks":
                clicked = chance.random() < quality * (0.30 if liked else 0.03)
                yield line | {"label": int(clicked), "feedback": "view", "observation_id": f"click-{user}-{item}"}
            elif liked or chance.random() < 0.1:
                plays = 1 + int(chance.expovariate(1 / (5 * quality if liked else 1)))
                yield line | {"label": plays, "feedback": "play", "observation_id": f"play-{user}-{item}"}


def items():
    for item in range(ITEMS):
        yield {"item": f"i{item}", "attributes": {"title": f"Title {item}", "topic": TOPICS[item % 3]}}


kind = sys.argv[1] if len(sys.argv) == 2 else ""
if kind not in ("items", "clicks", "plays"):
    sys.exit(__doc__)
for line in items() if kind == "items" else feedback(kind):
    print(json.dumps(line))
