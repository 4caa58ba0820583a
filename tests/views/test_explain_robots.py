"""What `explain` says of robots.txt."""

from crawler.rules.robots import RobotsRules
from crawler.views.reasons import RobotsFact, _robots


def test_a_line_below_another_name_is_explained() -> None:
    text = b"User-agent: *\nContent-Signal: search=yes\n\nUser-agent: GPTBot\nDisallow: /\n"
    fact = RobotsFact(verdict=RobotsRules.parse(text, "ours").verdict("http://h.test/a"))
    said = "forbidden (line 5: Disallow: /, which is below User-agent: GPTBot, in one group with ours by RFC 9309)"
    assert _robots(fact) == said
    plain = RobotsFact(verdict=RobotsRules.parse(b"User-agent: *\nDisallow: /", "ours").verdict("http://h.test/a"))
    assert _robots(plain) == "forbidden (line 2: Disallow: /)"
