#!/usr/bin/python3
"""What an online tenant gets while a batch tenant floods the server, with pg_sluice, without anything, and behind a pgbouncer.

Four clients make short reads in a closed loop; 64 clients of the batch tenant sleep in the server, or compute. Each arm runs in both
start orders, all of them in every round. A closed loop hides a stall from the percentiles, because a stalled client asks nothing
meanwhile: so the maximum is shown as well, and a wait that had not ended with the time of measurement counts as long as it was.

Environment (set by ./dev bench fairness): SLUICE_SERVER a folder for the servers, SLUICE_BIN the programs of a PostgreSQL with
pg_sluice installed, SLUICE_JSON the file to write; the plot goes beside it.  usage: fairness.py [--quick]
"""
import json
import math
import os
import shutil
import signal
import statistics
import sys
import time

import fairness_plot
from fairness_load import BATCH, ONLINE, SCRIPTS, Bouncer, Load, Server

FIRST_PORT = 57340
CORES = os.cpu_count()
PERMITS, ONLINE_CLIENTS, FLOOD = 20, 4, 64
# How many of the flood may compute at once so that one core is left; on one core that is not possible.
CPU_PERMITS = max(1, CORES - 1)
ORDERS = ("batch_first", "online_first")
FLOODS = ("sleep", "cpu")
# Measuring begins with the first answer to the tenant that came second: 64 logins are not the matter. An online tenant that gets none
# is given so many seconds.
ARRIVAL = 1.5
ARMS = ("unprotected", "sluice", "sluice_one_class", "pgbouncer")
NAMES = {"alone": "alone", "unprotected": "unprotected, no cap", "sluice": "pg_sluice, own class", "sluice_one_class": "pg_sluice, one class",
         "pgbouncer": f"pgbouncer, {PERMITS} connections"}


def own_class(flood):
    """The online class has a permit for each of its clients and lends them while nobody is there."""
    batch = PERMITS - ONLINE_CLIENTS if flood == "sleep" else CPU_PERMITS
    borrow = ONLINE_CLIENTS if flood == "sleep" else max(1, CORES - batch)
    return {"executionClasses": {
        "interactive": {"permits": ONLINE_CLIENTS, "maxQueue": 200},
        "batch": {"permits": batch, "maxQueue": 200, "queueDeadlineMs": 60000, "borrow": {"from": ["interactive"], "max": borrow, "ttlMs": 1000}}},
        "assign": [{"role": BATCH, "class": "batch"}]}


def batch_at_work(flood):
    """How many transactions of batch run at once while the online class lends all that it may."""
    batch = own_class(flood)["executionClasses"]["batch"]
    return batch["permits"] + batch["borrow"]["max"]


def one_class(flood):
    """All in one class; only the flood's number in flight is bounded, below the permits."""
    inflight = PERMITS - ONLINE_CLIENTS - 1 if flood == "sleep" else CPU_PERMITS
    return {"executionClasses": {"interactive": {"permits": PERMITS, "maxQueue": 200, "queueDeadlineMs": 60000}},
            "tenants": {"*": {}, BATCH: {"maxInflight": inflight}}}


POLICIES = {"sluice": own_class, "sluice_one_class": one_class}


def percentile(ordered, share):
    """By nearest rank; None where nothing was completed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


class Sample:
    """What one run showed between two moments."""

    def __init__(self, begin, end, online=None, batch=None, came=None):
        self.seconds = end - begin
        came = begin if came is None else came
        self.online_errors, online_done = online or (0, {})
        self.batch_errors, batch_done = batch or (0, {})
        inside, waits, firsts = [], [], []
        for done in online_done.values():
            before = [at for at, _ in done if at <= end]
            inside += [took for at, took in done if begin <= at <= end]
            firsts.append(min([at for at in before if at >= came], default=end) - came)
            # The transaction that was under way at the end. Who was not served at all waited from the beginning.
            started = min((at - took / 1e3 for at, took in done if at > end), default=None) if before else begin
            if started is not None and started < end:
                waits.append((end - max(started, begin)) * 1e3)
        self.latencies = sorted(inside)
        self.completed = len(inside)
        self.maximum = max(inside + waits, default=0)
        self.first = max(firsts, default=0) * 1e3
        self.batch_tps = sum(1 for done in batch_done.values() for at, _ in done if begin <= at <= end) / self.seconds

    def at(self, share):
        return percentile(self.latencies, share)


class Benchmark:
    def __init__(self, folder, programs, quick):
        self.folder, self.pgbench = folder, os.path.join(programs, "pgbench")
        self.seconds, self.lead, self.rounds = (4, 0.5, 1) if quick else (6, 0.5, 5)
        self.bare = Server(folder, programs, "bare", FIRST_PORT - 57310)
        self.sluice = Server(folder, programs, "sluice", FIRST_PORT - 57310 + 1)
        self.bouncer = Bouncer(self.bare, folder, PERMITS)
        self.samples = {}

    def load(self, port, role, script, clients):
        # Ended by this program; the limit is for the case that this one is killed.
        return Load(self.pgbench, self.folder, port, role, script, clients, 30 + 3 * self.seconds)

    def end(self, server, loads):
        """Ends the sessions, which makes pgbench write its logs and end: no flood has to be waited for."""
        self.bouncer.stop()
        server.sql(f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename IN ('{ONLINE}', '{BATCH}')")
        return {who: load.finish() for who, load in loads.items()}

    def alone(self):
        loads = {"online": self.load(self.bare.port, ONLINE, "read", ONLINE_CLIENTS)}
        self.bare.wait_for_sessions(ONLINE, ONLINE_CLIENTS)
        time.sleep(self.lead + self.seconds)
        end = time.time()
        return Sample(end - self.seconds, end, **self.end(self.bare, loads))

    def flooded(self, arm, flood, order):
        """Both tenants, one after the other."""
        server = self.sluice if arm in POLICIES else self.bare
        port = server.port
        if arm in POLICIES:
            server.enforce(POLICIES[arm](flood))
            waited = server.waited()
        if arm == "pgbouncer":
            self.bouncer.start()
            port = self.bouncer.port
        starts = {"online": (port, ONLINE, "read", ONLINE_CLIENTS), "batch": (port, BATCH, flood, FLOOD)}
        first, second = ("batch", "online") if order == "batch_first" else ("online", "batch")
        loads = {first: self.load(*starts[first])}
        # pgbouncer opens no more connections than it may, and as many for the online tenant as it sees fit.
        most = starts[first][3] if arm != "pgbouncer" else 1 if first == "online" else PERMITS
        server.wait_for_sessions(starts[first][1], most)
        time.sleep(self.lead)
        came = time.time()
        loads[second] = self.load(*starts[second])
        if second == "batch":
            server.wait_for_sessions(BATCH, FLOOD if arm != "pgbouncer" else 1)
        arrived = time.time() + (ARRIVAL if second == "online" else 0)
        time.sleep(arrived + self.seconds - time.time())
        if arm in POLICIES and server.waited() == waited:
            print(f"    {arm}, {flood}, {order}: nothing waited; this machine is too busy to make a flood", flush=True)
        ended = self.end(server, loads)
        answers = [at for done in ended[second][1].values() for at, _ in done[:1]]
        begin = min([arrived] + answers)
        return Sample(begin, begin + self.seconds, came=came, **ended)

    def batch_alone(self, server, flood, clients):
        if server is self.sluice:
            server.enforce(own_class(flood))
        loads = {"batch": self.load(server.port, BATCH, flood, clients)}
        server.wait_for_sessions(BATCH, clients)
        time.sleep(self.lead + self.seconds)
        end = time.time()
        return Sample(end - self.seconds, end, **self.end(server, loads))

    def steps(self):
        """What a round consists of: key, and how to measure it."""
        steps = [(("alone",), self.alone)]
        for flood in FLOODS:
            for order in ORDERS:
                steps += [((arm, flood, order), lambda arm=arm, flood=flood, order=order: self.flooded(arm, flood, order)) for arm in ARMS]
            # As many unprotected clients as batch may have at work: a cap of 20 lets 20 sleep; who computes is held back by the cores, and
            # 64 at once would only take more of these from whoever else uses the machine.
            clients = PERMITS if flood == "sleep" else batch_at_work(flood)
            steps.append((("idle", "unprotected", flood), lambda flood=flood, clients=clients: self.batch_alone(self.bare, flood, clients)))
            if flood == "cpu":
                steps.append((("idle", "flood", flood), lambda flood=flood: self.batch_alone(self.bare, flood, FLOOD)))
            steps.append((("idle", "sluice", flood), lambda flood=flood: self.batch_alone(self.sluice, flood, FLOOD)))
            steps.append((("alone",), self.alone))
        return steps

    def run(self):
        for script, text in SCRIPTS.items():
            with open(os.path.join(self.folder, script + ".sql"), "w", encoding="utf-8") as file:
                file.write(text)
        print("creating two servers", flush=True)
        self.bare.create()
        self.sluice.create()
        steps = self.steps()
        started = time.time()
        for number in range(self.rounds):
            # Each round begins elsewhere, so that nothing always comes after the same.
            offset = number * 5 % len(steps)
            for key, measure in steps[offset:] + steps[:offset]:
                self.samples.setdefault(key, [[] for _ in range(self.rounds)])[number].append(measure())
            print(f"  round {number + 1} of {self.rounds}, {time.time() - started:.0f} s", flush=True)

    def stop(self):
        Load.stop_all()
        self.bouncer.stop()
        self.bare.stop()
        self.sluice.stop()


class Summary:
    """The samples of one arm over all rounds: medians of the rounds, and the maximum of all."""

    def __init__(self, rounds):
        samples = [sample for group in rounds for sample in group]
        self.completed = sum(sample.completed for sample in samples)
        self.p50, self.p95, self.p99 = (self.middle([s.at(share) for s in samples]) for share in (0.5, 0.95, 0.99))
        self.maximum = max(sample.maximum for sample in samples)
        self.first = statistics.median(sample.first for sample in samples)
        self.online_tps = statistics.median(sample.completed / sample.seconds for sample in samples)
        self.batch_tps = statistics.median(sample.batch_tps for sample in samples)
        self.errors = sum(sample.online_errors + sample.batch_errors for sample in samples)
        # One value a round, for ratios between arms of the same round.
        self.p99_of_round = [self.middle([s.at(0.99) for s in group]) for group in rounds]
        self.batch_of_round = [statistics.median(s.batch_tps for s in group) for group in rounds]

    @staticmethod
    def middle(values):
        """None (nothing completed) is longer than any time."""
        return sorted(values, key=lambda value: math.inf if value is None else value)[len(values) // 2]


def ratio_of(over, under):
    """Median, least and most of the ratios of the rounds; what the machine did meanwhile, it did to both."""
    ratios = [math.inf if a is None else a / b for a, b in zip(over, under) if b]
    return (statistics.median(ratios), min(ratios), max(ratios)) if ratios else (math.nan,) * 3


def worse(ratios):
    return max(ratios, key=lambda ratio: ratio[0])


def show_table(summaries):
    print(f"\nonline tenant: {ONLINE_CLIENTS} clients, short reads, closed loop; batch tenant: {FLOOD} clients. Milliseconds; completed and maximum over "
          "all rounds, else medians of the rounds; first: from the second tenant's start to the first answer of the last client")
    print(f"{'':<42} {'completed':>9} {'p50':>8} {'p95':>8} {'p99':>8} {'maximum':>8} {'first':>7} {'online tps':>10} {'batch tps':>9} {'errors':>6}")
    for key, summary in summaries.items():
        if key[0] == "idle":
            continue
        name = NAMES[key[0]] if key[0] == "alone" else f"{key[1]:<6} {NAMES[key[0]]}, {key[2].replace('_', ' ')}"
        times = [f"{value:>8.2f}" if value is not None else f"{'-':>8}" for value in (summary.p50, summary.p95, summary.p99, summary.maximum)]
        starved = "" if summary.completed else "  starved: not one transaction"
        print(f"{name:<42} {summary.completed:>9} {' '.join(times)} {summary.first:>7.0f} {summary.online_tps:>10.0f} {summary.batch_tps:>9.1f} "
              f"{summary.errors:>6}{starved}")
    for flood in FLOODS:
        bare, sluice = (summaries["idle", arm, flood].batch_tps for arm in ("unprotected", "sluice"))
        who = f"{PERMITS if flood == 'sleep' else batch_at_work(flood)} clients"
        if flood == "cpu":
            who += f"; {summaries['idle', 'flood', flood].batch_tps:.1f} tps with {FLOOD}"
        print(f"batch alone, {flood}: {bare:.1f} tps unprotected ({who}), {sluice:.1f} tps with pg_sluice ({FLOOD} clients)")


def per_arm(summaries):
    figures = {"online_p99_ms_alone": summaries["alone",].p99, "online_max_ms_alone": summaries["alone",].maximum,
               "online_tps_alone": summaries["alone",].online_tps}
    for key, summary in summaries.items():
        if len(key) == 3 and key[0] != "idle":
            tail = "_".join(key)
            figures |= {f"online_completed_{tail}": summary.completed, f"online_max_ms_{tail}": summary.maximum, f"batch_tps_{tail}": summary.batch_tps,
                        f"errors_{tail}": summary.errors}
            # A percentile of nothing is left out.
            if summary.p99 is not None:
                figures[f"online_p99_ms_{tail}"] = summary.p99
    return figures


def judge(summaries):
    """The ratios the issue asks for, with their goals. Of the two start orders the worse one counts."""
    alone = summaries["alone",].p99_of_round
    p99 = {key: summary.p99_of_round for key, summary in summaries.items()}
    over_alone = {(arm, flood): worse([ratio_of(p99[arm, flood, order], alone) for order in ORDERS])
                  for arm in ("sluice", "sluice_one_class") for flood in FLOODS}
    gain = {flood: min((ratio_of(p99["unprotected", flood, order], p99["sluice", flood, order]) for order in ORDERS), key=lambda ratio: ratio[0])
            for flood in FLOODS}
    idle = {flood: ratio_of(summaries["idle", "sluice", flood].batch_of_round, summaries["idle", "unprotected", flood].batch_of_round)
            for flood in FLOODS}
    over_flood = ratio_of(summaries["idle", "sluice", "cpu"].batch_of_round, summaries["idle", "flood", "cpu"].batch_of_round)
    maximum = max(summaries["sluice", "sleep", order].maximum for order in ORDERS)
    shown = [
        ("online_p99_ratio_sluice", "p99 over alone, sleep flood, own class", over_alone["sluice", "sleep"], "<= 1.5"),
        ("online_max_ms_sluice", "longest wait, sleep flood, own class, ms", (maximum,) * 3, "<= 100"),
        ("online_p99_ratio_sluice_cpu", "p99 over alone, CPU flood, own class", over_alone["sluice", "cpu"], "<= 2"),
        ("online_p99_unprotected_over_sluice", "p99 unprotected over pg_sluice, CPU flood", gain["cpu"], ">= 5"),
        ("batch_throughput_ratio_idle", f"batch over {batch_at_work('cpu')} clients, online idle, CPU flood", idle["cpu"], ">= 0.9"),
        ("batch_throughput_ratio_idle_flood", f"batch over {FLOOD} clients, online idle, CPU flood", over_flood, "shown"),
        ("batch_throughput_ratio_idle_sleep", f"batch over {PERMITS} clients, online idle, sleep flood", idle["sleep"], ">= 0.9"),
        ("online_p99_ratio_sluice_one_class", "p99 over alone, sleep flood, one class", over_alone["sluice_one_class", "sleep"], "shown"),
        ("online_p99_ratio_sluice_one_class_cpu", "p99 over alone, CPU flood, one class", over_alone["sluice_one_class", "cpu"], "shown"),
    ]
    print(f"\n{'figure':<40} {'value':>8}  least to most    goal")
    for name, meaning, (middle, least, most), goal in shown:
        spread = f"{least:.2f} to {most:.2f}" if least != most else ""
        print(f"{name:<40} {middle:>8.2f}  {spread:<16} {goal:<8} {meaning}")
    return {name: value[0] for name, _, value, _ in shown if math.isfinite(value[0])}


def main():
    quick = "--quick" in sys.argv[1:]
    folder, target = os.path.join(os.environ["SLUICE_SERVER"], "bench"), os.environ["SLUICE_JSON"]
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(os.path.join(folder, "logs"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    benchmark = Benchmark(folder, os.environ["SLUICE_BIN"], quick)
    if os.geteuid() == 0:
        for path in [folder] + [os.path.join(folder, name) for name in os.listdir(folder)]:
            shutil.chown(path, "postgres")
    print(f"{CORES} cores; CPU flood: {CPU_PERMITS} batch permit(s); {benchmark.bouncer.version()}; {benchmark.rounds} round(s), "
          f"{benchmark.seconds} s a measurement", flush=True)
    try:
        benchmark.run()
        discrepancies = benchmark.sluice.discrepancies()
    finally:
        benchmark.stop()
    summaries = {key: Summary(rounds) for key, rounds in benchmark.samples.items()}
    show_table(summaries)
    figures = judge(summaries) | per_arm(summaries)
    with open(target, "w", encoding="utf-8") as file:
        json.dump({"figures": {name: round(value, 4) for name, value in figures.items()}, "cores": CORES}, file, indent=2)
        file.write("\n")
    plot = os.path.splitext(target)[0] + ".svg"
    fairness_plot.write(plot, summaries, NAMES, FLOODS, ORDERS, ARMS, f"{CORES} cores, {benchmark.rounds} round(s)")
    print(f"\nplot: {os.path.relpath(plot)}; sluice.reconcile() after all of it: {discrepancies or 'empty'}")
    shutil.rmtree(folder, ignore_errors=True)
    if discrepancies:
        sys.exit("the ledger does not balance")


if __name__ == "__main__":
    main()
