"""Pages that seem to be built by scripts: what counts as one."""

import pytest

from crawler.content.html import SCRIPTED_TEXT_MAX, parse_page

ROOT = "<div id=root></div>"
ROWS = [
    ("<script src=/app.js></script>" + ROOT, True),
    ("<script type=module src=/app.js></script>" + ROOT, True),
    ("<script type='text/javascript'>run()</script>" + ROOT, True),
    ("<script type='Application/JavaScript ' src=/a></script>", True),
    ("<body><noscript>" + "You need to enable JavaScript. " * 20 + "</noscript><script src=/a></script>", True),
    ("<script>var state = '" + "x" * 5_000 + "'</script>" + ROOT, True),
    ("<body><template>" + "x" * 500 + "</template><script src=/a></script>", True),
    ("<body><style>" + "x{} " * 500 + "</style><script src=/a></script>", True),
    ("<script src=/a></script>" + "x" * SCRIPTED_TEXT_MAX, True),
    ("<script src=/a></script>" + "x " * (SCRIPTED_TEXT_MAX + 1), False),
    ("<script src=/a></script>" + " \n" * 5_000 + "Loading", True),
    ("<script src=/a></script><a href=/x>x</a>", False),
    ("<script src=/a></script><iframe src=/x></iframe>", False),
    ("<script src=/a></script><meta http-equiv=refresh content='0; url=/x'>", False),
    ("<meta name=robots content=nofollow><script src=/a></script><a href=/x>x</a>", False),
    ("<script type='application/ld+json'>{}</script><p>hello", False),
    ("<script type=importmap>{}</script><p>hello", False),
    ("<script type=text/template><a></a></script><p>hello", False),
    ("<p>hello", False),
    ("", False),
    ("<!-- <script src=/a></script> --><p>hello", False),
    ("<noscript><script src=/a></script></noscript>", True),
    ("<svg><script href=/a></script></svg>", True),
]


@pytest.mark.parametrize(("body", "expected"), ROWS, ids=range(len(ROWS)))
def test_scripts_without_links_and_with_little_text_are_one(body: str, expected: bool) -> None:
    page = parse_page(
        "http://a.test/", "text/html", "", body.encode(), links_max=10, obey_nofollow=True, bytes_max=8192, agent="x"
    )
    assert page.is_scripted == expected
