"""What every test of the proxy gets: a private PostgreSQL, the proxy itself with a configuration of the test's choice, and
clients that speak the protocol by hand. Results are printed as TAP, a test's name being the first line of its docstring.

The environment names the programs: PATH begins with PostgreSQL's, SLUICE_COMMAND is the command line's.
"""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from wire import Client  # noqa: E402

SLUICE = os.environ.get("SLUICE_COMMAND", "sluice")
PASSWORDS = {"app": "app secret", "other": "other secret", "edge": "edge secret"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, limit_s=30, what="the condition"):
    """Waits for what must come; a test that needs this to be quick measures by itself."""
    end = time.monotonic() + limit_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"{what} did not come within {limit_s} s"
        time.sleep(0.02)


def make_certificate(folder, name, *options):
    """A self-signed certificate for localhost; returns the paths of certificate and key."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost,IP:127.0.0.1", *(options or ("-newkey", "rsa:2048")), "-keyout", str(key),
                    "-out", str(certificate)], check=True, capture_output=True)
    key.chmod(0o600)
    return certificate, key


class Server:
    """A private PostgreSQL on a free loopback port, with TLS and SCRAM over TCP, trust on its socket."""

    def __init__(self, folder):
        self.folder, self.data, self.port = folder, folder / "data", free_port()
        subprocess.run(["initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "--no-locale", "-E", "UTF8", "-N"],
                       check=True, capture_output=True)
        self.certificate, key = make_certificate(folder, "server")
        with open(self.data / "postgresql.conf", "a") as settings:
            settings.write(f"""
listen_addresses = '127.0.0.1'
port = {self.port}
unix_socket_directories = '{folder}'
password_encryption = 'scram-sha-256'
ssl = on
ssl_cert_file = '{self.certificate}'
ssl_key_file = '{key}'
max_connections = 60
fsync = off
shared_preload_libraries = 'pg_sluice'
max_prepared_transactions = 5
log_connections = on
log_min_messages = info
""")
        (self.data / "pg_hba.conf").write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        self.start()
        for name, password in PASSWORDS.items():
            self.run(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
        self.run("CREATE DATABASE app OWNER app")
        for database in ("app", "postgres"):
            self.run("CREATE EXTENSION pg_sluice", database=database, may_fail=True)
            self.run("GRANT USAGE ON SCHEMA sluice TO edge; GRANT EXECUTE ON FUNCTION sluice.scram_verifier(text) TO edge",
                     database=database, may_fail=True)

    def start(self):
        subprocess.run(["pg_ctl", "-D", self.data, "-w", "-l", self.folder / "server.log", "start"], check=True,
                       stdout=subprocess.DEVNULL)

    def stop(self, mode="fast"):
        subprocess.run(["pg_ctl", "-D", self.data, "-w", "-m", mode, "stop"], check=True, stdout=subprocess.DEVNULL)

    def run(self, sql, database="postgres", user="postgres", may_fail=False):
        """One value, by psql over the socket: around the proxy, as an administrator."""
        done = subprocess.run(["psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-h", self.folder, "-p", str(self.port), "-U", user,
                               "-d", database, "-c", sql], capture_output=True, text=True)
        assert may_fail or done.returncode == 0, f"{sql}: {done.stderr}"
        return done.stdout.strip()

    def client(self, user="app", database="app", tls=False, **parameters):
        """A raw client that is connected directly, for what PostgreSQL itself answers."""
        client = Client(("127.0.0.1", self.port))
        if tls:
            client.start_tls()
        return client.login(PASSWORDS.get(user), user=user, database=database, **parameters)

    def backends(self, user="app"):
        return int(self.run(f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{user}'"))


class Proxy:
    """`sluice proxy` with the given sections over those every test needs. Used as a context manager."""

    def __init__(self, folder, server_port, certificate, sections):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.port, self.admin_port = folder, free_port(), free_port()
        self.configuration = {
            "listen": {"addresses": ["127.0.0.1"], "port": self.port},
            "client_tls": {"mode": "allow", "certificate_file": str(certificate[0]), "key_file": str(certificate[1])},
            "server": {"host": "127.0.0.1", "port": server_port},
            "server_tls": {"mode": "disable"},
            "auth": {"source": "function", "user": "edge", "database": "postgres", "password_file": str(folder / "passwords")},
            "admin": {"address": "127.0.0.1", "port": self.admin_port},
            "limits": {"max_logins_per_address": 200},
            "drain": {"drain_wait_ms": 0, "shutdown_timeout_ms": 5000},
            "log": {"level": "debug"},
        }
        (folder / "passwords").write_text(PASSWORDS["edge"] + "\n")
        (folder / "passwords").chmod(0o600)
        self.exceptions = sections.pop("pools", [])
        for name, settings in sections.items():
            self.configuration[name] = {**self.configuration.get(name, {}), **settings}
        self.file, self.log = folder / "sluice.toml", folder / "proxy.log"
        self.process = None
        self.write()

    def write(self):
        def value(v):
            if isinstance(v, list):
                return "[" + ", ".join(map(value, v)) + "]"
            return str(v).lower() if isinstance(v, bool) else str(v) if isinstance(v, int) else f"'{v}'"

        lines = []
        for name, settings in self.configuration.items():
            lines += [f"[{name}]"] + [f"{k} = {value(v)}" for k, v in settings.items()] + [""]
        for settings in self.exceptions:
            lines += ["[[pools]]"] + [f"{k} = {value(v)}" for k, v in settings.items()] + [""]
        self.file.write_text("\n".join(lines))

    def start(self):
        with open(self.log, "a") as log:
            self.process = subprocess.Popen([SLUICE, "proxy", "--config", str(self.file)], stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL)

        def listens():
            assert self.process.poll() is None, f"the proxy ended with {self.process.returncode}:\n{self.log.read_text()[-4000:]}"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True

        wait_until(listens, what="the proxy's socket")
        return self

    def stop(self, limit_s=30):
        """Ends it as an operator would; what a sanitizer found shows in the status."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        if self.process:
            try:
                status = self.process.wait(limit_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"the proxy did not end within {limit_s} s:\n{self.log.read_text()[-4000:]}") from None
            assert status == 0, f"the proxy ended with {status}:\n{self.log.read_text()[-8000:]}"

    def reload(self):
        self.write()
        self.process.send_signal(signal.SIGHUP)

    def client(self, user="app", database="app", tls=False, password=None, **parameters):
        client = Client(("127.0.0.1", self.port))
        if tls:
            client.start_tls()
        return client.login(password or PASSWORDS.get(user), user=user, database=database, **parameters)

    def socket(self):
        return Client(("127.0.0.1", self.port))

    def get(self, path):
        """Status and body of the admin's HTTP."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name):
        """The sum of a metric over its labels."""
        total = 0.0
        for line in self.get("/metrics")[1].splitlines():
            if line.split("{")[0].split(" ")[0] == "sluice_proxy_" + name:
                total += float(line.rsplit(" ", 1)[1])
        return total

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident_kib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        if kind is None:
            self.stop()
        elif self.process:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    folder = pathlib.Path(os.environ.get("SLUICE_PROXY_HOME") or tmp_path_factory.mktemp("sluice"))
    shutil.rmtree(folder / "s", ignore_errors=True)
    (folder / "s").mkdir(parents=True)
    return folder / "s"


@pytest.fixture(scope="session")
def certificate(home):
    return make_certificate(home, "proxy")


@pytest.fixture(scope="session")
def server(home):
    (home / "pg").mkdir()
    server = Server(home / "pg")
    yield server
    server.stop()


@pytest.fixture
def make_proxy(home, server, certificate, request):
    """make_proxy(section={...}, pools=[{...}]) → a Proxy that is not started."""
    made = []

    def make(server_port=None, **sections):
        folder = home / f"{re.sub('[^A-Za-z0-9_]', '_', request.node.name)[:60]}_{len(made)}"
        made.append(Proxy(folder, server_port or server.port, certificate, sections))
        return made[-1]

    yield make
    for proxy in made:
        if proxy.process and proxy.process.poll() is None:
            proxy.process.kill()
            proxy.process.wait()


@pytest.fixture
def proxy(make_proxy):
    """A proxy with small pools, so that connections are shared and waits happen."""
    with make_proxy(pool={"max_size": 2}) as proxy:
        yield proxy


@pytest.fixture(params=["directly", "through the proxy"])
def either(request, server):
    """The same test against PostgreSQL itself and through the proxy: what it answers is the reference."""
    if request.param == "directly":
        return server
    return request.getfixturevalue("proxy")


# --- TAP ---

def pytest_configure(config):
    config.tap_count = 0


def pytest_runtest_logreport(report):
    reporter.take(report)


class Reporter:
    def __init__(self):
        self.count, self.names = 0, {}

    def take(self, report):
        if report.when != "call" and report.outcome == "passed":
            return
        self.count += 1
        name = self.names.get(report.nodeid, report.nodeid)
        skipped = " # SKIP" if report.outcome == "skipped" else ""
        print(f"\n{'ok' if report.outcome != 'failed' else 'not ok'} {self.count} - {name}{skipped}", flush=True)
        if report.outcome == "failed":
            for line in str(report.longrepr).splitlines()[-60:]:
                print(f"#   {line}")


reporter = Reporter()


def pytest_collection_modifyitems(items):
    for item in items:
        first = ((item.obj.__doc__ or item.name).strip().splitlines() or [item.name])[0].rstrip(".")
        case = item.name[item.name.index("["):] if "[" in item.name else ""
        reporter.names[item.nodeid] = first + (" " + case if case else "")
