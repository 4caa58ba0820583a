"""The project: documents that name what exists, and the scripts that start it on an empty machine."""

import os
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from importlib import metadata
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from crawler import errors
from crawler.cli.main import INTERRUPTED
from crawler.frontier import scripts

ROOT = Path(__file__).parent.parent
README_LINES_MAX = 150
SCRIPTS = (
    "crawl",
    "fuzz",
    "test",
    "check",
    "bench",
    "bench-record",
    "chaos",
    "make-reference",
    "renew-constraints",
    "simulate",
)


def sources(*suffixes: str) -> list[Path]:
    folders = ("crawler", "tests", "scripts")
    return [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Neither at the top, nor where they are used, nor for types."""
    graph = grimp.build_graph("crawler", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(list(TopologicalSorter(imports).static_order())) == len(graph.modules) > 200  # or a CycleError


# Files that start tasks outside of a task group, and what awaits them.
STARTS_TASKS = {
    "cli/crawl_options.py": "`run_alongside` gathers them",
    "engine/cluster.py": "it repeats until all is well, and only records what it finds; cancelled at the end",
    "engine/server.py": "it repeats until a primary answers, and only records what it finds; cancelled at the end",
    "engine/client.py": "callers await the results of the calls that it sends",
    "handlers/loop_end.py": "waits for a moment, then leaves user code behind",
    "worker/reaching.py": "its callback requeues the claim",
    "supervisor/child.py": "gathered when the process has ended",
    "supervisor/supervisor.py": "its callback stops all when one failed",
    "tui/app.py": "the read of the front screen: awaited, or cancelled when another screen comes to the front",
    "worker/hooks.py": "its loop awaits it, and at the end `finish`",
    "web/own_network.py": "who failed awaits it; closed with the fetcher",
    "web/resolver.py": "its callers await it",
}


def test_background_tasks_are_in_task_groups_or_awaited() -> None:
    """A task that is not awaited fails unseen."""
    found = {
        str(path.relative_to(ROOT / "crawler"))
        for path in (ROOT / "crawler").rglob("*.py")
        if re.search(r"(?<!group\.)\b(?:create_task|ensure_future)\(", path.read_text("utf-8"))
    }
    assert found == set(STARTS_TASKS)


def test_every_dependency_has_a_lower_bound_but_the_list_of_suffixes_which_is_pinned() -> None:
    """With two lists, a host could have two domains, and its URLs two owners."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pin = f"publicsuffixlist=={metadata.version('publicsuffixlist')}"
    assert [one for one in project["dependencies"] if ">=" not in one] == [pin]
    for requirements in project["optional-dependencies"].values():
        assert [one for one in requirements if ">=" not in one] == []


def test_the_readme_names_only_scripts_and_files_that_exist() -> None:
    readme = ROOT / "README.md"
    text = readme.read_text("utf-8")
    named = set(re.findall(r"(?:\./)?((?:scripts|docs|config|tests|\.ci)/[\w./-]*\w)", text))
    assert named, "the README shows no command"
    assert {name for name in named if not (ROOT / name).exists()} == set()


DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "examples" / "README.md"])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_name_only_files_and_link_only_to_pages_that_exist(document: Path) -> None:
    text = document.read_text("utf-8")
    named = set(re.findall(r"`((?:crawler|tests|scripts|config|docs)/[\w./-]*)`", text))
    assert {name for name in named if not (ROOT / name).exists()} == set()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http://", "https://")):
            page, _, heading = target.partition("#")
            file = document.parent / page if page else document
            assert file.exists(), target
            assert not heading or heading in headings(file), target


def prose_of(document: Path) -> str:
    """A page without its code blocks: what they name is the reader's."""
    return re.sub(r"^```.*?^```", "", document.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def headings(document: Path) -> set[str]:
    """Anchors of a page's headings as code hosts make them."""
    lines = re.findall(r"^#+ +(.+)$", document.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}


def test_every_test_that_a_page_names_exists() -> None:
    named = set(re.findall(r"\btest_\w+\b(?!\.py)", "".join(map(prose_of, DOCUMENTS))))
    written = {name for path in sources(".py") for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))}
    assert len(named) > 10
    assert named - written == set()


def test_every_fault_has_a_row_that_names_a_test_or_says_why_there_is_none() -> None:
    table = (ROOT / "docs" / "internals" / "faults.md").read_text("utf-8").partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| .* \| (.+) \|$", table, re.MULTILINE)
    assert len(rows) >= 48
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    assert [number for number, proof in rows if not re.search(r"`test_\w+`|^— \w", proof)] == []


def test_the_frontiers_page_has_a_row_for_every_script_and_no_other() -> None:
    page = (ROOT / "docs" / "internals" / "frontier-layout.md").read_text("utf-8")
    rows = page.partition("## Scripts")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE)) == set(scripts.NAMES)


def test_the_page_on_exit_codes_has_every_code_and_no_other() -> None:
    page = (ROOT / "docs" / "operate" / "exit-codes.md").read_text("utf-8")
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    raised = {kind.exit_code for kind in kinds if issubclass(kind, errors.CrawlerError)}
    assert documented == raised | {0, INTERRUPTED}


def test_the_readme_is_short() -> None:
    assert (ROOT / "README.md").read_text("utf-8").count("\n") <= README_LINES_MAX


SECTIONS = ("guide", "operate", "internals", "internals/decisions")


@pytest.mark.parametrize("section", SECTIONS)
def test_the_index_of_a_section_links_to_each_of_its_pages(section: str) -> None:
    folder = ROOT / "docs" / section
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", (folder / "index.md").read_text("utf-8")))
    assert {page.name for page in folder.glob("*.md")} - {"index.md"} == linked


def test_the_index_of_decisions_finds_every_old_number() -> None:
    folder = ROOT / "docs" / "internals" / "decisions"
    rows = re.findall(r"^\| (\S+).* \|([ \d,]+)\|$", (folder / "index.md").read_text("utf-8"), re.MULTILINE)
    found = {int(number): where for where, numbers in rows for number in re.findall(r"\d{4}", numbers)}
    assert sorted(found) == list(range(1, 40))
    for number, where in found.items():
        page = re.fullmatch(r"\[[\w-]+\]\(([\w-]+\.md)\)", where)
        assert page is None or f"{number:04}" in (folder / page[1]).read_text("utf-8")


PROSE_MAX = 100  # characters of a line outside of tables and code


def test_pages_are_wrapped() -> None:
    pages = [page for page in DOCUMENTS if page.name not in ("reference.md", "CHANGELOG.md")]
    lines = [(page.name, line) for page in pages for line in prose_of(page).splitlines()]
    long = [(name, line) for name, line in lines if len(line) > PROSE_MAX and not line.startswith(("|", "<!--", "!["))]
    assert long == []


def test_pages_for_users_name_no_tests() -> None:
    pages = [*(ROOT / "docs" / "guide").glob("*.md"), *(ROOT / "docs" / "operate").glob("*.md"), ROOT / "README.md"]
    assert [(page.name, name) for page in pages for name in re.findall(r"`test_\w+`", prose_of(page))] == []


@pytest.mark.parametrize("name", [f"scripts/{name}" for name in SCRIPTS] + [".ci/run"])
def test_scripts_can_be_run_and_parsed(name: str) -> None:
    script = ROOT / name
    assert os.access(script, os.X_OK)
    subprocess.run(["sh", "-n", str(script)], check=True)


FAKE_PYTHON = """#!/bin/sh
# Stands for Python: makes no real environment and installs nothing, but keeps count.
case " $* " in
*" -m venv "*) for last; do :; done; mkdir -p "$last/bin"; cp "$0" "$last/bin/python" ;;
*" -m pip --version "*) ;;
*" -m pip "*) echo pip >>"$COUNT"; sleep 0.2
    echo "$PWD $PIP_CONSTRAINT $PIP_BUILD_CONSTRAINT" >>"$COUNT.said"
    [ -z "$PIP_ERROR" ] || {{ echo "$PIP_ERROR" >&2; exit 1; }}
    printf '#!/bin/sh\\necho "$PWD: $*"\\n' >"$VENV/bin/crawler"; chmod +x "$VENV/bin/crawler" ;;
*) exec {python} "$@" ;;
esac
"""


class Clone:
    """A copy of the scripts in a folder with a space in its name, and an interpreter that installs nothing."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a clone"
        (self.root / "scripts").mkdir(parents=True)
        for name in ("bootstrap.sh", "crawl"):
            copy = self.root / "scripts" / name
            copy.write_bytes((ROOT / "scripts" / name).read_bytes())
            copy.chmod(0o755)
        (self.root / "pyproject.toml").write_text("[project]\n")
        (self.root / "constraints.txt").write_text("a==1\n")
        python = folder / "bin" / "python3"
        python.parent.mkdir()
        python.write_text(FAKE_PYTHON.format(python=sys.executable))
        python.chmod(0o755)
        self.count = folder / "count"
        self.count.touch()
        self.environment = {"PATH": f"{python.parent}:/usr/bin:/bin", "COUNT": str(self.count), "HOME": ""}
        self.environment |= {"VENV": str(self.root / ".venv"), "PIP_ERROR": ""}

    def start(self, *arguments: str, script: Path | None = None, **environment: str) -> "subprocess.Popen[str]":
        command = ["sh", "-c", 'exec "$@" <&-', "-", str(script or self.root / "scripts" / "crawl"), *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd="/", env=self.environment | environment, stdout=pipe, stderr=pipe, text=True
        )

    def crawl(self, *arguments: str, script: Path | None = None, **environment: str) -> tuple[int, str, str]:
        with self.start(*arguments, script=script, **environment) as process:
            out, err = process.communicate(timeout=30)
        return process.returncode, out, err

    @property
    def installs(self) -> int:
        return self.count.read_text().count("pip")


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_the_first_start_installs_and_says_so_in_one_line_and_the_second_says_nothing(clone: Clone) -> None:
    code, out, err = clone.crawl("http://a.test/", "--depth", "2")
    assert (code, out) == (0, "/: crawl http://a.test/ --depth 2\n")
    assert err.count("\n") == 1
    assert str(clone.root / ".venv") in err
    assert clone.crawl("x") == (0, "/: crawl x\n", "")
    assert clone.installs == 1


def test_changed_dependencies_install_again(clone: Clone) -> None:
    clone.crawl("x")
    (clone.root / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    clone.crawl("x")
    assert clone.installs == 2
    (clone.root / "constraints.txt").write_text("a==2\n")
    clone.crawl("x")
    assert clone.installs == 3


def test_all_installs_take_the_versions_of_the_constraints(clone: Clone) -> None:
    """Also what builds the package; by a name without a blank in it, which would part it in two."""
    clone.crawl("x")
    said = (clone.count.with_suffix(".said")).read_text().split("\n")
    assert said[0] == f"{clone.root} constraints.txt constraints.txt"


def test_the_constraints_have_one_fitting_version_of_each_dependency() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if not line.startswith("#")]
    pinned = {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}
    assert len(pinned) == len(lines)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    wanted = [
        *project["project"]["dependencies"],
        *project["build-system"]["requires"],
        *(r for e in extras for r in e),
    ]
    for requirement in map(Requirement, wanted):
        version = pinned.get(canonicalize_name(requirement.name))
        assert version, f"{requirement.name} is not in constraints.txt: run ./scripts/renew-constraints"
        assert requirement.specifier.contains(version), requirement


def test_a_moved_clone_installs_again(clone: Clone) -> None:
    clone.crawl("x")
    moved = clone.root.with_name("moved")
    clone.root.rename(moved)
    code, out, _ = clone.crawl("x", script=moved / "scripts" / "crawl", VENV=str(moved / ".venv"))
    assert (code, out, clone.installs) == (0, "/: crawl x\n", 2)


def test_two_first_starts_at_once_install_once(clone: Clone) -> None:
    processes = [clone.start(name) for name in ("x", "y")]
    outputs = [process.communicate(timeout=30)[0] for process in processes]
    assert outputs == ["/: crawl x\n", "/: crawl y\n"]
    assert clone.installs == 1


def test_the_script_finds_its_project_through_a_link(clone: Clone, tmp_path: Path) -> None:
    link = tmp_path / "crawl-link"
    link.symlink_to(clone.root / "scripts" / "crawl")
    assert clone.crawl("x", script=link)[:2] == (0, "/: crawl x\n")


def test_a_failed_install_shows_pips_last_words_and_is_tried_again(clone: Clone) -> None:
    code, out, err = clone.crawl("x", PIP_ERROR="ERROR: nothing found")
    assert (code, out) == (1, "")
    assert "ERROR: nothing found\ncrawl: installing failed" in err
    assert clone.crawl("x")[:2] == (0, "/: crawl x\n")


def test_without_a_python_that_is_new_enough_one_line_says_so(clone: Clone) -> None:
    tools = Path(clone.environment["PATH"].partition(":")[0])
    for name in ("python3", "python"):
        (tools / name).write_text("#!/bin/sh\nexit 1\n")
        (tools / name).chmod(0o755)
    for name in ("sh", "cat", "cksum", "dirname", "readlink", "mkdir"):
        (tools / name).symlink_to(f"/usr/bin/{name}" if Path(f"/usr/bin/{name}").exists() else f"/bin/{name}")
    code, _, err = clone.crawl("x", PATH=str(tools))
    assert code == 1
    assert err == "crawl: Python 3.11 or newer is needed and was not found (set PYTHON to its path)\n"


def test_a_root_that_can_not_be_written_is_one_line(clone: Clone) -> None:
    (clone.root / ".cache").write_text("a file where a folder is needed")
    code, _, err = clone.crawl("x")
    assert (code, err) == (1, f"crawl: can't write to {clone.root}\n")
