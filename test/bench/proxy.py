#!/usr/bin/python3
"""What a proxy costs: pgbench -S directly, through pg_sluice, and through a bare byte relay, which is the floor.

Rounds go through all arms in random order, so that other work on the machine meets each of them; what is compared are medians of
rounds. CPU time of the proxies comes from /proc and is divided by the transactions of the same run.

Environment (set by ./dev bench proxy): SLUICE_SERVER a folder, SLUICE_BIN PostgreSQL's programs, SLUICE_COMMAND the command
line, SLUICE_RELAY the bare relay, SLUICE_JSON the file to write.  usage: proxy.py [--quick]
"""
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "proxy"))
import conftest  # noqa: E402

ARMS = ["direct", "sluice", "relay"]
RUNS = [("simple", 1), ("simple", 16), ("prepared", 1), ("prepared", 16)]
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def become_postgres():
    """A server does not run as root: neither does anything else here."""
    if os.geteuid() == 0:
        import pwd
        user = pwd.getpwnam("postgres")
        os.initgroups("postgres", user.pw_gid)
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)


def cpu_s(pid):
    """User and system time of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def pgbench(port, protocol, clients, seconds):
    """Transactions, their rate, and latencies (ms) of one run."""
    done = subprocess.run(
        ["pgbench", "-n", "-S", "-M", protocol, "-c", str(clients), "-j", "1", "-T", str(seconds), "--progress=1000", "-h", "127.0.0.1",
         "-p", str(port), "-U", "app", "app"], capture_output=True, text=True, check=False,
        env={**os.environ, "PGPASSWORD": conftest.PASSWORDS["app"], "PGSSLMODE": "disable"})
    if done.returncode != 0:
        sys.exit(f"pgbench failed: {done.stderr[-2000:]}")
    count = int(re.search(r"transactions actually processed: (\d+)", done.stdout).group(1))
    tps = float(re.search(r"^tps = ([\d.]+)", done.stdout, re.M).group(1))
    latency = float(re.search(r"latency average = ([\d.]+)", done.stdout).group(1))
    return count, tps, latency


def measure(ports, pids, rounds, seconds):
    """{(arm, protocol, clients): [(tps, latency ms, CPU µs per transaction), …]}"""
    found = {}
    for round_number in range(rounds):
        jobs = [(arm, protocol, clients) for arm in ARMS for protocol, clients in RUNS]
        random.shuffle(jobs)
        for number, (arm, protocol, clients) in enumerate(jobs):
            before = cpu_s(pids[arm]) if arm in pids else 0
            count, tps, latency = pgbench(ports[arm], protocol, clients, seconds)
            used = cpu_s(pids[arm]) - before if arm in pids else 0
            found.setdefault((arm, protocol, clients), []).append((tps, latency, used / count * 1e6))
            print(f"\rround {round_number + 1} of {rounds}: {number + 1} of {len(jobs)} runs", end="", flush=True, file=sys.stderr)
    print(file=sys.stderr)
    return found


def main():
    quick = "--quick" in sys.argv[1:]
    rounds, seconds = (2, 3) if quick else (5, 10)
    become_postgres()
    os.environ["PATH"] = os.environ["SLUICE_BIN"] + ":" + os.environ["PATH"]
    conftest.SLUICE = os.environ["SLUICE_COMMAND"]
    home = pathlib.Path(os.environ["SLUICE_SERVER"]) / "bench-proxy"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    server = conftest.Server(home)
    certificate = conftest.make_certificate(home, "proxy")
    subprocess.run(["pgbench", "-q", "-i", "-s", "10", "-h", str(home), "-p", str(server.port), "-U", "app", "app"], check=True,
                   capture_output=True)
    # Nobody shall wait here: what is measured is the way of a transaction, not a queue.
    proxy = conftest.Proxy(home / "sluice", server.port, certificate, {"pool": {"max_size": 20}, "log": {"level": "warning"}})
    relay_port = conftest.free_port()
    relay = subprocess.Popen([os.environ["SLUICE_RELAY"], str(relay_port), str(server.port)])
    try:
        proxy.start()
        time.sleep(0.2)
        ports = {"direct": server.port, "sluice": proxy.port, "relay": relay_port}
        found = measure(ports, {"sluice": proxy.process.pid, "relay": relay.pid}, rounds, seconds)
        proxy.stop()
    finally:
        relay.kill()
        relay.wait()
        server.stop()
    figures = {}
    print(f"{'pgbench -S':<18}{'arm':<9}{'tps':>10}{'of direct':>11}{'latency ms':>12}{'proxy CPU µs/tx':>17}{'of relay':>10}")
    for protocol, clients in RUNS:
        median = {arm: [statistics.median(column) for column in zip(*found[arm, protocol, clients])] for arm in ARMS}
        for arm in ARMS:
            tps, latency, used = median[arm]
            of_relay = f"{used / median['relay'][2]:>10.2f}" if arm != "direct" else f"{'':>10}"
            print(f"{protocol + ' c' + str(clients):<18}{arm:<9}{tps:>10.0f}{tps / median['direct'][0]:>11.2f}{latency:>12.3f}{used:>17.1f}{of_relay}")
            figures[f"tps_{protocol}_c{clients}_{arm}"] = round(tps, 1)
            if arm != "direct":
                figures[f"cpu_us_{protocol}_c{clients}_{arm}"] = round(used, 2)
        figures[f"cpu_ratio_relay_{protocol}_c{clients}"] = round(median["sluice"][2] / median["relay"][2], 3)
        figures[f"tps_ratio_direct_{protocol}_c{clients}"] = round(median["sluice"][0] / median["direct"][0], 3)
    with open(os.environ["SLUICE_JSON"], "w", encoding="utf-8") as file:
        json.dump({"figures": figures, "cores": os.cpu_count()}, file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
