"""The dashboard, the alert rules and the documentation name metrics that exist; for the rules, with their labels."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.api.scraped_crawl import scraped_crawl

ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((ROOT / "config" / "prometheus-alerts.yml").read_text("utf-8"))["groups"][0]["rules"]
DASHBOARD = json.loads((ROOT / "config" / "grafana-dashboard.json").read_text("utf-8"))
TARGETS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
VARIABLES = [v["query"]["query"] for v in DASHBOARD["templating"]["list"] if v["type"] == "query"]
WORDS = {"and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring", "group_left", "group_right"}
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")

Selector = tuple[str, frozenset[str]]  # name of a metric, and the labels that are matched


def selectors(expression: str) -> set[Selector]:
    """What a PromQL expression reads."""
    text = re.sub(r"\[[^\]]*\]", " ", re.sub(r'"[^"]*"', '""', expression))
    found = re.findall(r"(?<![\w.])([a-zA-Z_:][\w:]*)\s*(\(|\{[^}]*\})?", GROUPING.sub(" ", text))
    return {
        (name, frozenset(re.findall(r"(\w+)\s*[=!]~?", after)))
        for name, after in found
        if after != "(" and name not in WORDS
    }


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, set[str]]]:
    """Type and labels of all metrics of a crawl, of domains too."""
    scraped = scraped_crawl(tmp_path_factory.mktemp("crawl"))
    families = [*text_string_to_metric_families(scraped.running), *text_string_to_metric_families(scraped.again)]
    return {sample.name: (family.type, set(sample.labels)) for family in families for sample in family.samples}


def test_selectors_are_found_in_expressions() -> None:
    expression = 'sum by (node) (rate(a_total{x="b{}c", y=~"d"}[5m])) > 5e9 and on (crawl) b == 0 or f(c[1h], 4 * 3)'
    assert selectors(expression) == {("a_total", frozenset({"x", "y"})), ("b", frozenset()), ("c", frozenset())}


@pytest.mark.slow(ci=True)
def test_rules_and_dashboard_read_metrics_that_exist_by_labels_that_they_have(
    exposed: dict[str, tuple[str, set[str]]],
) -> None:
    own = {"up": ("gauge", {"job", "instance"})}  # of Prometheus
    read = set[Selector]().union(*map(selectors, [*TARGETS, *(rule["expr"] for rule in RULES)]))
    assert len(read) > 30
    for name, labels in read:
        assert name in exposed | own, name
        assert labels <= (exposed | own)[name][1], name
    for variable in VARIABLES:
        name, label = re.fullmatch(r"label_values\((\w+)(?:{.*})?, (\w+)\)", variable).groups()  # type: ignore[union-attr]
        assert label in exposed[name][1]


def test_rates_are_of_counters_and_changes_of_gauges(exposed: dict[str, tuple[str, set[str]]]) -> None:
    for expression in (*TARGETS, *(rule["expr"] for rule in RULES)):
        for function, name in re.findall(r"\b(rate|increase|delta|predict_linear)\((\w+)", expression):
            assert exposed[name][0] == ("counter" if function in ("rate", "increase") else "gauge"), name


def test_the_page_on_monitoring_has_a_row_for_every_metric_with_its_type_and_no_other(
    exposed: dict[str, tuple[str, set[str]]],
) -> None:
    page = (ROOT / "docs" / "operate" / "monitoring.md").read_text("utf-8")
    rows = re.findall(r"^\| `(crawler_\w+)` \| (\w+) \|([^|]*)\|", page, re.MULTILINE)
    documented = {name: (kind, {"crawl", *re.findall(r"`(\w+)`", labels)}) for name, kind, labels in rows}
    assert len(documented) == len(rows)
    assert documented == {name: (kind, labels - {"node"}) for name, (kind, labels) in exposed.items()}


def test_every_alert_says_what_happened_and_what_to_do() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len({*names}) == len(names) >= 10
    page = (ROOT / "docs" / "operate" / "monitoring.md").read_text("utf-8")
    for rule in RULES:
        notes: dict[str, Any] = rule["annotations"]
        assert set(notes) == {"summary", "description"}
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert f"`{rule['alert']}`" in page
