#!/usr/bin/python3
"""The demo: a private cluster, a batch flood and an online tenant, first counted (shadow), then admitted (enforced).

Run by `./dev demo`. Everything lives in one folder; the server listens on a socket there and on a free loopback port, where the
proxy's lookup role and one visitor have passwords that are made anew each time. Whatever ends the demo, no process is left.
"""
import argparse
import os
import pathlib
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import psycopg2

BATCH_CLIENTS = 40
ONLINE_CLIENTS = 4
BATCH_QUERY = "SELECT sum(sqrt(i)) FROM generate_series(1, 120000) AS i"
ONLINE_QUERY = "SELECT count(*), sum(price) FROM shop.items WHERE shelf = %s"
THINK_SECONDS = 0.02  # between two requests of an online client

SETUP = """
CREATE SCHEMA shop;
CREATE TABLE shop.items AS
  SELECT i AS id, i % 100 AS shelf, (i * 7919) % 1000 AS price FROM generate_series(1, 200000) AS i;
CREATE INDEX ON shop.items (shelf);
ANALYZE shop.items;
GRANT USAGE ON SCHEMA shop TO PUBLIC;
GRANT SELECT ON shop.items TO PUBLIC;
CREATE ROLE online_shop LOGIN;
CREATE ROLE batch_reports LOGIN;
CREATE ROLE batch_export LOGIN;
CREATE ROLE ops LOGIN IN ROLE pg_monitor;
"""

PROXY_ROLES = """
CREATE ROLE sluice_lookup LOGIN PASSWORD '{lookup}';
GRANT USAGE ON SCHEMA sluice TO sluice_lookup;
GRANT EXECUTE ON FUNCTION sluice.scram_verifier(text) TO sluice_lookup;
CREATE ROLE visitor LOGIN PASSWORD '{visitor}';
"""

# Everything stays on the loopback interface, so nothing is encrypted.
PROXY_CONFIGURATION = """
listen.port = {port}
client_tls.mode = "disable"
server.port = {server_port}
server_tls.mode = "disable"
auth.database = "demo"
auth.password_file = "{password_file}"
pool.max_size = 5
admin.port = {admin_port}
drain.drain_wait_ms = 0
drain.shutdown_timeout_ms = 2000
log.format = "text"
"""


class Stopped(Exception):
    """Somebody asked the demo to end."""


class Interrupt:
    """Turns a signal into Stopped, but not while a server is being made or started: there it would leave one behind."""

    def __init__(self):
        self.held = 0
        self.pending = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.handle)

    def handle(self, _number, _frame):
        first, self.pending = not self.pending, True
        if first and not self.held:
            raise Stopped

    def __enter__(self):
        self.held += 1

    def __exit__(self, kind, *_):
        self.held -= 1


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Cluster:
    """A PostgreSQL cluster of its own, with pg_sluice preloaded."""

    def __init__(self, binaries, folder):
        self.binaries = pathlib.Path(binaries)
        self.folder = pathlib.Path(folder)
        self.data = self.folder / "data"
        self.log = self.folder / "server.log"
        self.prefix = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        # A socket's path has room for about a hundred bytes.
        self.short = None
        self.sockets = self.folder
        if len(str(self.folder)) > 80:
            self.short = self.sockets = pathlib.Path(tempfile.mkdtemp(prefix="pg_sluice."))
        self.port = free_port()

    def run(self, program, *arguments):
        command = [*self.prefix, str(self.binaries / program), *map(str, arguments)]
        # A file, not a pipe: the server would hold a pipe's end open.
        with tempfile.TemporaryFile("w+") as output:
            code = subprocess.call(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   start_new_session=True, cwd=self.folder)
            if code:
                output.seek(0)
                raise RuntimeError(f"{program} failed:\n{output.read()}")

    def start(self):
        if (self.data / "postmaster.pid").exists():
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, mode=0o700)
        for owned in {self.folder, self.sockets}:
            owned.chmod(0o700)
            if self.prefix:
                shutil.chown(owned, "postgres")
        self.run("initdb", "-D", self.data, "-U", "postgres", "--auth-local=trust", "--auth-host=scram-sha-256", "--no-sync",
                 "--encoding=UTF8", "--no-locale")
        with open(self.data / "postgresql.conf", "a", encoding="utf-8") as settings:
            settings.write(f"""
shared_preload_libraries = 'pg_sluice'
pg_sluice.database = 'demo'
cluster_name = 'demo'
listen_addresses = '127.0.0.1'
port = {self.port}
unix_socket_directories = '{self.sockets}'
max_connections = 100
max_parallel_workers_per_gather = 0
jit = off
fsync = off
log_checkpoints = off
""")
        self.run("pg_ctl", "-D", self.data, "-l", self.log, "-w", "-t", "60", "start")

    def stop(self):
        """Stops the server, and does not return before its last process is gone."""
        if not (self.data / "postmaster.pid").exists():
            return
        for mode in ("fast", "immediate"):
            try:
                self.run("pg_ctl", "-D", self.data, "-w", "-t", "20", "-m", mode, "stop")
                return
            except RuntimeError as error:
                problem = error
        print(problem, file=sys.stderr)

    def remove(self):
        shutil.rmtree(self.data, ignore_errors=True)
        if self.short:
            shutil.rmtree(self.short, ignore_errors=True)

    def connect(self, user, database="demo"):
        connection = psycopg2.connect(host=str(self.sockets), port=self.port, user=user, dbname=database,
                                      application_name="pg_sluice demo")
        connection.autocommit = True
        return connection

    def psql_line(self):
        return f"psql -h {self.sockets} -p {self.port} -U postgres demo"


class Proxy:
    """`sluice proxy` in front of the cluster, with a role whose password it reads verifiers with, and one for visitors."""

    def __init__(self, cluster, sluice):
        self.cluster, self.sluice, self.process = cluster, sluice, None
        self.port, self.admin_port = free_port(), free_port()
        self.password = secrets.token_hex(8)
        self.log = cluster.folder / "proxy.log"

    def start(self, cursor):
        lookup = secrets.token_hex(8)
        cursor.execute(PROXY_ROLES.format(lookup=lookup, visitor=self.password))
        owner = {"user": "postgres", "group": "postgres", "extra_groups": []} if self.cluster.prefix else {}
        password_file, configuration = self.cluster.folder / "lookup.password", self.cluster.folder / "proxy.toml"
        password_file.touch(mode=0o600)
        password_file.write_text(lookup + "\n", encoding="utf-8")
        configuration.write_text(PROXY_CONFIGURATION.format(
            port=self.port, admin_port=self.admin_port, server_port=self.cluster.port, password_file=password_file), encoding="utf-8")
        if owner:
            shutil.chown(password_file, "postgres")
        with open(self.log, "w", encoding="utf-8") as log:
            # A session of its own: Ctrl-C is for the demo, which ends the proxy in order.
            self.process = subprocess.Popen([self.sluice, "proxy", "--config", str(configuration)], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, start_new_session=True, cwd=self.cluster.folder, **owner)

    def try_it(self):
        """How many rows a visitor sees through it."""
        for attempt in range(50):
            if self.process.poll() is not None:
                break
            try:
                connection = psycopg2.connect(host="127.0.0.1", port=self.port, user="visitor", password=self.password, dbname="demo")
                break
            except psycopg2.OperationalError:
                if attempt == 49:
                    raise
                time.sleep(0.1)
        if self.process.poll() is not None:
            raise RuntimeError(f"the proxy ended with {self.process.returncode}:\n{self.log.read_text(encoding='utf-8')}")
        connection.autocommit = True
        cursor = connection.cursor()
        cursor.execute("SELECT count(*) FROM shop.items")
        rows = cursor.fetchone()[0]
        connection.close()
        return rows

    def lines(self):
        return [f"through the proxy: PGPASSWORD={self.password} psql -h 127.0.0.1 -p {self.port} -U visitor demo",
                f"its state: curl http://127.0.0.1:{self.admin_port}/pools"]

    def stop(self):
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Tally:
    """What a group of clients did; drained once a second by the display."""

    def __init__(self):
        self.lock = threading.Lock()
        self.latencies = []
        self.refused = 0
        self.failed = 0
        self.last_failure = ""

    def done(self, seconds):
        with self.lock:
            self.latencies.append(seconds * 1000)

    def refuse(self):
        with self.lock:
            self.refused += 1

    def fail(self, error):
        with self.lock:
            self.failed += 1
            self.last_failure = str(error).strip()

    def drain(self):
        with self.lock:
            taken = self.latencies, self.refused
            self.latencies, self.refused = [], 0
        return taken


class Client(threading.Thread):
    """One connection that repeats its query, and keeps to the contract: after a refusal it waits as long as it was told."""

    def __init__(self, cluster, stop, user, query, think, tally):
        super().__init__(daemon=True)
        self.cluster, self.stop, self.user, self.query, self.think, self.tally = cluster, stop, user, query, think, tally

    def run(self):
        try:
            connection = self.cluster.connect(self.user)
            cursor = connection.cursor()
            while not self.stop.is_set():
                self.request(cursor)
            connection.close()
        except psycopg2.Error as error:
            if not self.stop.is_set():
                self.tally.fail(error)

    def request(self, cursor):
        started = time.monotonic()
        try:
            cursor.execute(self.query, (random.randrange(100),) if "%s" in self.query else None)
            cursor.fetchall()
        except psycopg2.Error as error:
            if error.pgcode != "53000":
                raise
            self.tally.refuse()
            told = re.search(r"retry_after_ms=(\d+)", error.diag.message_detail or "")
            self.stop.wait(int(told.group(1)) / 1000 if told else 0.3)
            return
        self.tally.done(time.monotonic() - started)
        if self.think:
            self.stop.wait(self.think)


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


class Demo:
    HEADER = ("phase      sec | batch: permits  queue   done/s refused/s | online: permits  queue   done/s"
              "   p50 ms   p99 ms   max ms")

    def __init__(self, cluster, sluice, interrupt):
        self.cluster = cluster
        self.proxy = Proxy(cluster, sluice)
        self.sluice = sluice
        self.interrupt = interrupt
        self.stop = threading.Event()
        self.online, self.batch = Tally(), Tally()
        self.clients = []
        self.monitor = None
        self.summary = []

    def prepare(self):
        print("creating a private cluster in", self.cluster.folder, flush=True)
        with self.interrupt:
            self.cluster.start()
        if self.interrupt.pending:
            raise Stopped
        connection = self.cluster.connect("postgres", "postgres")
        connection.cursor().execute("CREATE DATABASE demo")
        connection.close()
        self.monitor = self.cluster.connect("postgres")
        cursor = self.monitor.cursor()
        cursor.execute(SETUP)
        cursor.execute("CREATE EXTENSION pg_sluice")
        with self.interrupt:
            self.proxy.start(cursor)
        if self.interrupt.pending:
            raise Stopped
        policy = pathlib.Path(__file__).parent / "policy.yaml"
        print(f"$ sluice policy publish {policy.name}", flush=True)
        environment = dict(os.environ, PGHOST=str(self.cluster.sockets), PGPORT=str(self.cluster.port), PGUSER="postgres",
                           PGDATABASE="demo")
        done = subprocess.run([self.sluice, "policy", "publish", str(policy)], env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        print(done.stdout.rstrip(), flush=True)
        if done.returncode:
            raise RuntimeError("the policy was not published")

    def add_clients(self, count, users, query, think, tally):
        for number in range(count):
            client = Client(self.cluster, self.stop, users[number % len(users)], query, think, tally)
            client.start()
            self.clients.append(client)

    def classes(self):
        """Permits in use and queue length of each class, as the ledger shows them."""
        cursor = self.monitor.cursor()
        cursor.execute("SELECT class, in_use, permits, queued FROM sluice.classes")
        return {name: (in_use, permits, queued) for name, in_use, permits, queued in cursor.fetchall()}

    def second(self, phase, number):
        """Waits a second, then prints what happened in it."""
        time.sleep(1)
        latencies, _ = self.online.drain()
        batch_latencies, refused = self.batch.drain()
        classes = self.classes()
        show = {}
        for name in ("batch", "interactive"):
            in_use, permits, queued = classes.get(name, (0, None, 0))
            show[name] = f"{in_use:>4}/{'-' if permits is None else permits:<3} {queued:>6}"
        print(f"{phase:<9} {number:>4} |      {show['batch']} {len(batch_latencies):>8} {refused:>9} |       {show['interactive']} "
              f"{len(latencies):>8} {percentile(latencies, 0.5):>8.1f} {percentile(latencies, 0.99):>8.1f} "
              f"{max(latencies, default=float('nan')):>8.1f}", flush=True)
        for tally, who in ((self.online, "online"), (self.batch, "batch")):
            if tally.failed:
                raise RuntimeError(f"a {who} client failed: {tally.last_failure}")
        return latencies, len(batch_latencies), refused

    def phase(self, name, seconds, remember=True):
        print(self.HEADER, flush=True)
        online, batch, refused = [], 0, 0
        for number in range(1, seconds + 1):
            latencies, done, not_admitted = self.second(name, number)
            online += latencies
            batch += done
            refused += not_admitted
        if remember:
            self.summary.append((name, seconds, online, batch, refused))

    def enforce(self):
        cursor = self.monitor.cursor()
        cursor.execute("SELECT max(generation) FROM sluice.policies")
        generation = cursor.fetchone()[0]
        print(f"\n=> SELECT * FROM sluice.activate({generation}, over_limit => 'drain');", flush=True)
        cursor.execute("SELECT kind, name, rule, now, peak, \"limit\", would_refuse, would_wait FROM "
                       "sluice.activate(%s, over_limit => 'drain')", (generation,))
        self.table(cursor)

    @staticmethod
    def table(cursor):
        """Prints a result as psql would."""
        rows = [[column.name for column in cursor.description]]
        rows += [["" if value is None else str(value) for value in row] for row in cursor.fetchall()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        rows.insert(1, ["-" * width for width in widths])
        for row in rows:
            print("   " + "  ".join(value.ljust(width) for value, width in zip(row, widths)).rstrip())
        print(flush=True)

    def run(self, once, seconds):
        self.prepare()
        print(f"\n{ONLINE_CLIENTS} online clients alone:", flush=True)
        self.add_clients(ONLINE_CLIENTS, ["online_shop"], ONLINE_QUERY, THINK_SECONDS, self.online)
        self.phase("alone", 3)
        print(f"\n{BATCH_CLIENTS} batch clients come, each with one query after another. The policy is in shadow: "
              "it counts, and touches nothing.", flush=True)
        self.add_clients(BATCH_CLIENTS, ["batch_reports", "batch_export"], BATCH_QUERY, 0, self.batch)
        self.settle()
        self.phase("shadow", seconds)
        self.enforce()
        self.settle()
        self.phase("enforced", seconds)
        self.finish()
        if not once:
            print("\nIt goes on until Ctrl-C.\n", flush=True)
            while True:
                self.phase("enforced", 20, remember=False)

    def settle(self):
        """Lets the change reach everybody before its first second counts."""
        time.sleep(1)
        self.online.drain()
        self.batch.drain()

    def finish(self):
        print("\nphase       online: done/s   p50 ms   p99 ms   max ms   batch: done/s  refused/s")
        for name, seconds, online, batch, refused in self.summary:
            print(f"{name:<19} {len(online) / seconds:>7.1f} {percentile(online, 0.5):>8.1f} {percentile(online, 0.99):>8.1f} "
                  f"{max(online, default=float('nan')):>8.1f} {batch / seconds:>15.1f} {refused / seconds:>10.1f}")
        cursor = self.monitor.cursor()
        cursor.execute("SELECT * FROM sluice.reconcile()")
        print(f"\nsluice.reconcile(): {cursor.rowcount} discrepancies between the ledger and the server")
        if cursor.rowcount:
            self.table(cursor)
        print(f"a visitor through the proxy sees {self.proxy.try_it()} rows of shop.items")
        print("look around:", self.cluster.psql_line())
        print("\n".join(self.proxy.lines()), flush=True)

    def end(self):
        """Ends server, clients and folder; from here on no signal gets in between."""
        with self.interrupt:
            self.stop.set()
            self.proxy.stop()
            self.cluster.stop()
            for client in self.clients:
                client.join(5)
            self.cluster.remove()


def main():
    parser = argparse.ArgumentParser(prog="./dev demo")
    parser.add_argument("--bin", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--folder", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--sluice", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--once", action="store_true", help="end after the summary")
    parser.add_argument("--seconds", type=int, default=8, help="length of the shadow and of the enforced phase")
    arguments = parser.parse_args()

    interrupt = Interrupt()
    demo = Demo(Cluster(arguments.bin, arguments.folder), arguments.sluice, interrupt)
    status = 0
    try:
        demo.run(arguments.once, arguments.seconds)
    except Stopped:
        print("\nending", flush=True)
    except (RuntimeError, psycopg2.Error) as error:
        print(f"\nthe demo failed: {error}", file=sys.stderr)
        if demo.cluster.log.exists():
            print("".join(demo.cluster.log.read_text(encoding="utf-8").splitlines(keepends=True)[-20:]), file=sys.stderr)
        status = 1
    finally:
        demo.end()
    print("the demo has ended; no process is left", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
