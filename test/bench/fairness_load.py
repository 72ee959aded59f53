"""What the benchmark of fairness runs: two clusters (with and without pg_sluice), a pgbouncer, and pgbench as the load of a tenant."""
import json
import os
import re
import signal
import subprocess
import sys
import time

import admission

ONLINE, BATCH = "bench_online", "bench_batch"
ACCOUNTS = 500000
PGBOUNCER = "/usr/sbin/pgbouncer"
# What the clients of each tenant do, over and over. A read takes about half a millisecond, a computation some tens. The sleeps
# differ in length, or all of a flood would end at the same moment.
READ_ROWS = 2000
SCRIPTS = {
    "read": f"\\set aid random(1, {ACCOUNTS - READ_ROWS})\n"
            f"SELECT sum(abalance) FROM pgbench_accounts WHERE aid BETWEEN :aid AND :aid + {READ_ROWS - 1};\n",
    "sleep": "\\set ms random(50, 150)\nSELECT pg_sleep(:ms / 1000.0);\n",
    "cpu": "SELECT count(*), sum(abalance * (aid % 7)), max(hashint4(aid)) FROM pgbench_accounts WHERE aid <= 200000;\n",
}


def as_server():
    """Root runs servers and clients as the user postgres."""
    return {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}


def stop_process(process, how):
    if process is None or process.poll() is not None:
        return
    process.send_signal(how)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Server(admission.Server):
    """A cluster with the accounts of pgbench and a role for each tenant; with pg_sluice unless its mode is 'bare'."""

    def create(self):
        self.run(self.program("initdb"), "-D", self.folder, "-A", "trust", "-U", "bench_admin", "--no-sync", "-E", "UTF8", "--locale=C")
        settings = f"""
listen_addresses = ''
unix_socket_directories = '{self.socket}'
port = {self.port}
max_connections = 150
shared_buffers = '512MB'
fsync = off
autovacuum = off
checkpoint_timeout = '1h'
max_parallel_workers_per_gather = 0
"""
        if self.mode != "bare":
            settings += "shared_preload_libraries = 'pg_sluice'\npg_sluice.database = 'postgres'\npg_sluice.label = 'bench'\n"
        self.run("tee", "-a", os.path.join(self.folder, "postgresql.conf"), input=settings)
        self.start()
        self.run(self.program("pgbench"), *self.connection(), "-U", "bench_admin", "-i", "-q", "-s", str(ACCOUNTS // 100000), "postgres")
        for role in (ONLINE, BATCH):
            self.sql(f"CREATE ROLE {role} LOGIN; GRANT SELECT ON pgbench_accounts TO {role}")
        self.sql("VACUUM ANALYZE")
        self.sql("CHECKPOINT")
        if self.mode != "bare":
            self.sql("CREATE EXTENSION pg_sluice")
        self.sql("SELECT sum(abalance) FROM pgbench_accounts")
        self.generation = 0

    def enforce(self, fields):
        """A new generation with these fields."""
        self.generation += 1
        document = {"schema": "dbAdmissionPolicy.v1", "database": "bench/write", "generation": self.generation, "serverSessionPermits": 100,
                    "adminReserve": 3, "loginHeadroom": 10, "fairness": "weighted-deficit-v2", **fields}
        self.sql(f"SELECT * FROM sluice.publish('{json.dumps(document)}'::jsonb)")
        self.sql(f"SELECT * FROM sluice.activate({self.generation}, 'enforce')")

    def wait_for_sessions(self, role, count):
        """Logins take what time the machine has for them; after a while it goes on without the rest."""
        deadline = time.time() + 15
        while time.time() < deadline and int(self.sql(f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{role}'")) < count:
            time.sleep(0.2)

    def waited(self):
        return int(self.sql("SELECT coalesce(sum(waited), 0) FROM sluice.classes"))

    def discrepancies(self):
        return self.sql("SELECT * FROM sluice.reconcile()").strip()


class Bouncer:
    """Debian's pgbouncer in front of a server: transaction pooling, and one cap on the server connections of the database."""

    def __init__(self, server, folder, cap):
        self.folder, self.port, self.process = os.path.join(folder, "pgbouncer"), server.port + 10, None
        if not os.access(PGBOUNCER, os.X_OK):
            sys.exit(f"there is no {PGBOUNCER}; ./dev bench fairness installs it")
        os.makedirs(self.folder)
        users = os.path.join(self.folder, "users")
        with open(users, "w", encoding="utf-8") as file:
            file.write(f'"{ONLINE}" ""\n"{BATCH}" ""\n')
        with open(os.path.join(self.folder, "pgbouncer.ini"), "w", encoding="utf-8") as file:
            file.write(f"""[databases]
postgres = host={server.socket} port={server.port} dbname=postgres
[pgbouncer]
listen_port = {self.port}
unix_socket_dir = {folder}
auth_type = trust
auth_file = {users}
pool_mode = transaction
max_client_conn = 200
default_pool_size = {cap}
max_db_connections = {cap}
pidfile = {self.folder}/pid
logfile = {self.folder}/log
""")
        self.socket = folder

    def version(self):
        text = subprocess.run([PGBOUNCER, "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout
        return text.splitlines()[0]

    def start(self):
        """A new one for each run, so that no pool is left of the run before."""
        with open(os.path.join(self.folder, "output"), "ab") as output:
            self.process = subprocess.Popen([PGBOUNCER, "-q", os.path.join(self.folder, "pgbouncer.ini")], stdin=subprocess.DEVNULL,
                                            stdout=output, stderr=output, cwd=self.folder, **as_server())
        socket = os.path.join(self.socket, f".s.PGSQL.{self.port}")
        for _ in range(200):
            if os.path.exists(socket):
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit(f"pgbouncer does not start; see {self.folder}/log")

    def stop(self):
        stop_process(self.process, signal.SIGINT)


class Load:
    """The clients of one tenant: a pgbench that logs each transaction, and that ends when its sessions are ended or its time is up."""

    running = []

    def __init__(self, program, folder, port, role, script, clients, seconds):
        self.clients = clients
        self.folder = os.path.join(folder, "logs")
        for name in os.listdir(self.folder):
            if name.startswith(f"{role}."):
                os.unlink(os.path.join(self.folder, name))
        path = os.path.join(folder, script + ".sql")
        self.prefix = f"{role}.log"
        self.process = subprocess.Popen(
            [program, "-h", folder, "-p", str(port), "-U", role, "-n", "-f", path, "-c", str(clients), "-j", str(max(1, clients // 8)),
             "-T", str(seconds), "-l", "--log-prefix", os.path.join(self.folder, self.prefix), "postgres"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder, **as_server())
        Load.running.append(self)

    def finish(self):
        """Waits for the end; how many clients were given up before it, and each client's transactions as (end, milliseconds)."""
        try:
            output = self.process.communicate(timeout=60)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            sys.exit(f"pgbench does not end: {self.process.communicate()[0][-500:]}")
        Load.running.remove(self)
        # What the server says: that a session is ended, which is our doing, or something that is an error.
        told = re.findall(r"(?:FATAL|ERROR): +(.*)", output)
        errors = [text for text in told if not re.match(r"terminating connection|server closed|pgbouncer|the database system", text)]
        if errors:
            print(f"    {len(errors)} errors: {errors[0][:140]}", flush=True)
        done = {number: [] for number in range(self.clients)}
        for name in os.listdir(self.folder):
            if name.startswith(self.prefix + "."):
                with open(os.path.join(self.folder, name), encoding="utf-8") as file:
                    for line in file:
                        client, _, took, _, second, micro = line.split()[:6]
                        done[int(client)].append((int(second) + int(micro) / 1e6, int(took) / 1e3))
        return len(errors), done

    @classmethod
    def stop_all(cls):
        for load in cls.running:
            stop_process(load.process, signal.SIGTERM)
