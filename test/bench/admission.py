#!/usr/bin/python3
"""What admission costs a server whose callers never wait: pgbench against four servers that differ in nothing else.

  bare        pg_sluice is not loaded
  no_policy   loaded, nothing published
  shadow      a policy in shadow
  enforcing   the same policy enforced, with more permits than clients

Throughput and logins are measured in interleaved rounds, since this is a machine that others use as well; instructions of the
backend are counted by callgrind as the difference of two run lengths, which neither load nor start-up can disturb: they judge.

Environment (set by ./dev bench admission): SLUICE_SERVER a folder for the servers, SLUICE_BIN the programs of a PostgreSQL with
pg_sluice installed, SLUICE_JSON the file to write.  usage: admission.py [--quick] [--only-instructions] [--annotate]
"""
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

MODES = ["bare", "no_policy", "shadow", "enforcing"]
RUNS = [("simple", 1), ("simple", 8), ("prepared", 1), ("prepared", 8)]
# Nothing is counted inside this function: whether the backend has to wait for the client's next message, which takes it a few
# hundred instructions, is decided by how busy the machine is.
CLIENT_READ = "secure_read"
FIRST_PORT = 57310
ROLE = "bench_app"
POLICY = {
    "schema": "dbAdmissionPolicy.v1", "database": "bench/write", "generation": 1, "serverSessionPermits": 80, "adminReserve": 3,
    "loginHeadroom": 5, "fairness": "weighted-deficit-v2",
    "executionClasses": {"interactive": {"permits": 60, "maxQueue": 100}, "batch": {"permits": 20, "maxQueue": 100}},
    "defaultClass": "interactive", "tenants": {"*": {"weight": 1, "maxInflight": 60}},
}


class Server:
    """A private cluster in one of the modes. Root runs it as the user postgres."""

    def __init__(self, folder, bin_folder, mode, number):
        self.folder, self.bin, self.mode, self.port = os.path.join(folder, mode), bin_folder, mode, FIRST_PORT + number
        self.socket = folder
        self.process = None
        self.user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []

    def run(self, *command, **options):
        done = subprocess.run(self.user + list(command), check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              **options)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        return done.stdout

    def program(self, name):
        return os.path.join(self.bin, name)

    def connection(self):
        return ["-h", self.socket, "-p", str(self.port)]

    def create(self):
        self.run(self.program("initdb"), "-D", self.folder, "-A", "trust", "-U", "bench_admin", "--no-sync", "-E", "UTF8", "--locale=C")
        preload = "" if self.mode == "bare" else "pg_sluice"
        settings = f"""
listen_addresses = ''
unix_socket_directories = '{self.socket}'
port = {self.port}
max_connections = 100
shared_buffers = '128MB'
fsync = off
autovacuum = off
checkpoint_timeout = '1h'
shared_preload_libraries = '{preload}'
"""
        if preload:
            settings += "pg_sluice.database = 'postgres'\npg_sluice.label = 'bench'\n"
        self.run("tee", "-a", os.path.join(self.folder, "postgresql.conf"), input=settings)
        self.start()
        self.sql(f"CREATE ROLE {ROLE} LOGIN; GRANT CREATE ON SCHEMA public TO {ROLE}")
        self.run(self.program("pgbench"), *self.connection(), "-U", ROLE, "-i", "-q", "-s", "5", "postgres")
        self.sql("VACUUM ANALYZE")
        self.sql("CHECKPOINT")
        if preload:
            self.sql("CREATE EXTENSION pg_sluice")
        if self.mode in ("shadow", "enforcing"):
            self.sql(f"SELECT * FROM sluice.publish('{json.dumps(POLICY)}'::jsonb)")
        if self.mode == "enforcing":
            self.sql("SELECT * FROM sluice.activate(1, 'enforce')")

    def sql(self, statement):
        return self.run(self.program("psql"), *self.connection(), "-U", "bench_admin", "-d", "postgres", "-XAtq", "-v", "ON_ERROR_STOP=1",
                        "-c", statement)

    def start(self, wrapper=()):
        log = os.path.join(self.socket, f"{self.mode}.log")
        with open(log, "ab") as output:
            self.process = subprocess.Popen(self.user + list(wrapper) + [self.program("postgres"), "-D", self.folder], stdout=output,
                                            stderr=output, start_new_session=True)
        for _ in range(1200):
            time.sleep(0.1)
            if self.process.poll() is not None:
                break
            if subprocess.run(self.user + [self.program("pg_isready"), *self.connection(), "-q"], check=False).returncode == 0:
                return
        with open(log, encoding="utf-8", errors="replace") as output:
            sys.exit(f"the server '{self.mode}' does not start:\n{output.read()[-2000:]}")

    def stop(self):
        if self.process is None or self.process.poll() is not None:
            return
        try:
            with open(os.path.join(self.folder, "postmaster.pid"), encoding="utf-8") as file:
                os.kill(int(file.readline()), signal.SIGINT)
            self.process.wait(60)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def pgbench(self, *options):
        return self.run(self.program("pgbench"), *self.connection(), "-U", ROLE, "-n", *options, "postgres")

    def throughput(self, protocol, clients, seconds):
        output = self.pgbench("-S", "-M", protocol, "-c", str(clients), "-j", str(min(clients, 2)), "-T", str(seconds))
        return float(re.search(r"tps = ([0-9.]+) \(without", output).group(1))

    def login_us(self, count, script):
        """Time of one connection with nothing done on it."""
        output = self.pgbench("-C", "-f", script, "-c", "1", "-t", str(count))
        return 1e6 / float(re.search(r"tps = ([0-9.]+)", output).group(1))

    def wait_for_policy(self):
        """After a start the publisher reads the policy in its own time."""
        deadline = time.time() + 60
        while self.mode in ("shadow", "enforcing") and time.time() < deadline:
            if self.sql("SELECT generation FROM sluice.status").strip() == "1":
                return
            time.sleep(0.2)

    def check(self):
        """The mode is what the table says it is."""
        if self.mode == "bare":
            return
        mode, queued = self.sql("SELECT mode, (SELECT coalesce(sum(waited), 0) FROM sluice.classes) FROM sluice.status").strip().split("|")
        granted = int(self.sql("SELECT coalesce(sum(granted), 0) FROM sluice.classes"))
        wanted = {"no_policy": "shadow", "shadow": "shadow", "enforcing": "enforce"}[self.mode]
        if mode != wanted or int(queued) != 0 or granted == 0:
            sys.exit(f"the server '{self.mode}' is in mode {mode}, {queued} waited, {granted} were granted: not what is measured here")


def instructions(server, protocol, lengths, keep=None):
    """Instructions of the backend for one transaction."""
    counts = []
    for length in lengths:
        before = set(os.listdir(server.socket))
        server.pgbench("-S", "-M", protocol, "-c", "1", "-t", str(length), "--random-seed=1")
        # pgbench has one session for its own questions and one for the client: the client's is the longest by far.
        deadline = time.time() + 60
        totals = {}
        while time.time() < deadline and len(totals) < 2:
            time.sleep(0.3)
            for name in set(os.listdir(server.socket)) - before:
                if name.startswith("callgrind."):
                    with open(os.path.join(server.socket, name), encoding="utf-8", errors="replace") as file:
                        found = re.search(r"^(?:totals|summary): (\d+)", file.read(), re.M)
                    if found:
                        totals[name] = int(found.group(1))
        if not totals:
            sys.exit(f"callgrind left no count for the server '{server.mode}'")
        longest = max(totals, key=totals.get)
        counts.append(totals[longest])
        if keep and length == lengths[-1]:
            shutil.copy(os.path.join(server.socket, longest), f"{keep}.{server.mode}.{protocol}")
    return (counts[1] - counts[0]) / (lengths[1] - lengths[0])


def count_instructions(servers, quick, keep):
    lengths = (300, 1300) if quick else (500, 2500)
    repeats = 1 if quick else 3
    counted = {}
    for server in servers:
        server.stop()
        server.start(["valgrind", "--tool=callgrind", "--quiet", f"--toggle-collect={CLIENT_READ}", "--collect-atstart=yes",
                      f"--callgrind-out-file={server.socket}/callgrind.%p"])
        server.wait_for_policy()
        server.pgbench("-S", "-c", "1", "-t", "50")
        for protocol in ("simple", "prepared"):
            counted[server.mode, protocol] = statistics.median(instructions(server, protocol, lengths, keep) for _ in range(repeats))
            print(f"  {server.mode:<10} {protocol:<9} {counted[server.mode, protocol]:>9.0f} instructions a transaction", flush=True)
        server.check()
        server.stop()
    return counted


def measure_throughput(servers, quick):
    rounds, seconds = (3, 2) if quick else (11, 3)
    measured = {(server.mode, run): [] for server in servers for run in RUNS}
    for server in servers:
        server.throughput("prepared", 8, 1)
    for number in range(rounds):
        print(f"  round {number + 1} of {rounds}", flush=True)
        for run in RUNS:
            # Each round begins with another server, so that none is always the first.
            for offset in range(len(servers)):
                server = servers[(number + offset) % len(servers)]
                measured[server.mode, run].append(server.throughput(*run, seconds))
    return measured


def measure_logins(servers, quick, folder):
    script = os.path.join(folder, "nothing.sql")
    with open(script, "w", encoding="utf-8") as file:
        file.write("\\set nothing 1\n")
    os.chmod(script, 0o644)
    rounds, count = (5, 30) if quick else (11, 150)
    measured = {server.mode: [] for server in servers}
    for number in range(rounds):
        for offset in range(len(servers)):
            server = servers[(number + offset) % len(servers)]
            measured[server.mode].append(server.login_us(count, script))
    return measured


def ratios(measured, mode, run):
    """Of each round's pair; what the machine did meanwhile, it did to both."""
    return [a / b for a, b in zip(measured[mode, run], measured["bare", run])]


def report(throughput, logins, counted, figures):
    print(f"\n{'instructions a transaction':<28} " + " ".join(f"{mode:>12}" for mode in MODES) + f" {'added':>12}")
    for protocol in ("simple", "prepared"):
        row = [counted[mode, protocol] for mode in MODES]
        print(f"{'select, ' + protocol:<28} " + " ".join(f"{value:>12.0f}" for value in row) + f" {row[-1] - row[0]:>12.0f}")
        for mode in MODES[1:]:
            added = round(counted[mode, protocol] - counted["bare", protocol])
            name = f"added_instructions_{protocol}" if mode == "enforcing" else f"added_instructions_{mode}_{protocol}"
            figures[name] = added
    if not throughput:
        return
    print(f"\n{'transactions a second':<28} " + " ".join(f"{mode:>12}" for mode in MODES) + "   ratio to bare: median (least to most)")
    for run in RUNS:
        protocol, clients = run
        name = f"{protocol}, {clients} client{'s' if clients > 1 else ''}"
        print(f"{name:<28} " + " ".join(f"{statistics.median(throughput[mode, run]):>12.0f}" for mode in MODES), end="   ")
        parts = []
        for mode in MODES[1:]:
            pairs = ratios(throughput, mode, run)
            parts.append(f"{statistics.median(pairs):.3f} ({min(pairs):.2f} to {max(pairs):.2f})")
            figures[f"tps_ratio_{mode}_{protocol}_c{clients}"] = round(statistics.median(pairs), 4)
        print(", ".join(parts))
    print(f"{'microseconds a login':<28} " + " ".join(f"{statistics.median(logins[mode]):>12.0f}" for mode in MODES))
    for mode in MODES[1:]:
        added = [a - b for a, b in zip(logins[mode], logins["bare"])]
        figures[f"added_us_per_login_{mode}"] = round(statistics.median(added), 1)
        print(f"  {mode}: {statistics.median(added):.0f} us more than bare (least {min(added):.0f}, most {max(added):.0f})")


def main():
    quick, only, keep = "--quick" in sys.argv, "--only-instructions" in sys.argv, None
    folder = os.path.join(os.environ["SLUICE_SERVER"], "bench")
    target = os.environ["SLUICE_JSON"]
    if "--annotate" in sys.argv:
        keep = target + ".callgrind"
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    servers = [Server(folder, os.environ["SLUICE_BIN"], mode, number) for number, mode in enumerate(MODES)]
    figures, throughput, logins = {}, {}, {}
    try:
        print("creating four servers", flush=True)
        for server in servers:
            server.create()
        if not only:
            print("throughput and logins, interleaved", flush=True)
            throughput = measure_throughput(servers, quick)
            logins = measure_logins(servers, quick, folder)
            for server in servers:
                server.check()
        print("instructions", flush=True)
        counted = count_instructions(servers, quick, keep)
    finally:
        for server in servers:
            server.stop()
    report(throughput, logins, counted, figures)
    with open(target, "w", encoding="utf-8") as file:
        json.dump({"figures": figures, "cores": os.cpu_count()}, file, indent=2)
        file.write("\n")
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
