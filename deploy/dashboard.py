"""Checks the dashboard of Grafana, and writes its expressions as rules, which promtool checks.

    dashboard.py DASHBOARD RULES
"""

import json
import sys

# What Grafana puts in place of its variables.
VARIABLES = {"$__rate_interval": "5m", "$instance": ".*", "$model": ".*"}


def expressions(dashboard):
    """All expressions, with the titles of their panels."""
    for annotation in dashboard["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def check_layout(panels):
    """Fails if panels share an id or lie on each other."""
    ids = [panel["id"] for panel in panels]
    assert len(set(ids)) == len(ids), "two panels have one id"
    taken = {}
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, f"{panel['title']} is wider than the dashboard"
        for cell in ((x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])):
            other = taken.setdefault(cell, panel["title"])
            assert other == panel["title"], f"{panel['title']} lies on {other}"


def main(dashboard_file, rules_file):
    with open(dashboard_file, encoding="utf-8") as file:
        dashboard = json.load(file)
    check_layout(dashboard["panels"])
    rules = []
    for title, expression in expressions(dashboard):
        for variable, value in VARIABLES.items():
            expression = expression.replace(variable, value)
        assert "$" not in expression, f"{title}: an unknown variable in {expression}"
        rules.append({"record": f"panel:{len(rules)}", "expr": expression})
    with open(rules_file, "w", encoding="utf-8") as file:
        json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
    print(f"{len(rules)} expressions")


if __name__ == "__main__":
    main(*sys.argv[1:])
