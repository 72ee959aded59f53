#!/usr/bin/env python3
"""Load for the stress tests: many processes, one connection each, that run transactions of every shape through the wire
protocol, while others cancel, terminate and kill them. What was acknowledged and what was refused is written down, so that the
caller can compare it with the tables. Prints one line of JSON at the end."""
import argparse
import collections
import json
import multiprocessing
import os
import random
import signal
import socket
import struct
import sys
import time
import uuid

ANSWER_SECONDS = 180
WAIT, GO, STOP = 0, 1, 2  # the word that starts and ends all workers
# What the client brings about itself (or may meet, as one of many): everything else is a finding.
EXPECTED = {
    "57014",  # cancelled, or over a time limit
    "57P01",  # terminated
    "53000", "53300",  # refused by the ledger
    "40001", "40P01",  # lost a race with other transactions
    "22012", "25P02",  # division by zero on purpose, and the statements after it
    "25P01", "3B001", "34000", "42P03",  # a cancelled BEGIN, SAVEPOINT, DECLARE or CLOSE, and what was to follow it
    "42710",  # the name of a request that is running or has run
}


class Lost(Exception):
    """The connection is gone."""


class Wire:
    """One connection; only what the shapes need of the protocol."""

    def __init__(self, args, user, application="stress"):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(ANSWER_SECONDS)
        self.path = f"{args.socket}/.s.PGSQL.{args.port}"
        self.buffer = b""
        self.status = "I"
        self.pid = self.key = 0
        while True:
            try:
                self.sock.connect(self.path)
                break
            except BlockingIOError:  # the listen queue is full
                time.sleep(0.02)
            except OSError as error:
                raise Lost(str(error)) from error
        body = struct.pack("!i", 196608)
        for name, value in (("user", user), ("database", "postgres"), ("application_name", application)):
            body += name.encode() + b"\0" + value.encode() + b"\0"
        body += b"\0"
        self.send(struct.pack("!i", len(body) + 4) + body)
        answer = self.finish()
        if answer.codes:
            raise Refused(answer.codes[0])

    def send(self, data):
        try:
            self.sock.sendall(data)
        except OSError as error:
            raise Lost(str(error)) from error

    def message(self):
        while True:
            if len(self.buffer) >= 5:
                length = struct.unpack("!i", self.buffer[1:5])[0] + 1
                if len(self.buffer) >= length:
                    kind, body = self.buffer[:1], self.buffer[5:length]
                    self.buffer = self.buffer[length:]
                    return kind, body
            try:
                data = self.sock.recv(65536)
            except socket.timeout as error:
                raise TimeoutError(f"no answer in {ANSWER_SECONDS} s") from error
            except OSError as error:
                raise Lost(str(error)) from error
            if not data:
                raise Lost("closed")
            self.buffer += data

    def finish(self):
        answer = Answer()
        while True:
            try:
                kind, body = self.message()
            except Lost:
                # What the server said before it closed counts.
                if answer.codes:
                    answer.closed = True
                    return answer
                raise
            if kind == b"E":
                fields = dict((part[:1], part[1:].decode(errors="replace")) for part in body.split(b"\0") if part)
                answer.codes.append(fields.get(b"C", "?????"))
                answer.texts.append(fields.get(b"M", ""))
            elif kind == b"C":
                answer.tags.append(body.rstrip(b"\0").decode())
            elif kind == b"D":
                answer.rows += 1
            elif kind == b"G":
                self.send(pack(b"d", b"1\n2\n") + (pack(b"c", b"") if random.random() < 0.7 else pack(b"f", b"stop\0")))
            elif kind == b"K":
                self.pid, self.key = struct.unpack("!ii", body)
            elif kind == b"Z":
                self.status = answer.status = body.decode()
                return answer

    def query(self, sql):
        self.send(pack(b"Q", sql.encode() + b"\0"))
        return self.finish()

    def close(self):
        self.sock.close()


class Refused(Exception):
    pass


class Answer:
    def __init__(self):
        self.codes, self.texts, self.tags, self.rows, self.status, self.closed = [], [], [], 0, "", False


def pack(kind, body):
    return kind + struct.pack("!i", len(body) + 4) + body


def extended(sql, portal=b"", rows=0):
    return (pack(b"P", b"\0" + sql.encode() + b"\0\0\0") + pack(b"B", portal + b"\0\0" + struct.pack("!hhh", 0, 0, 0)) +
            pack(b"E", portal + b"\0" + struct.pack("!i", rows)))


SYNC, FLUSH = pack(b"S", b""), pack(b"H", b"")


class Worker:
    """One client process. Ids are unique over all runs of all workers: number of the process, then a counter."""

    def __init__(self, args, number, counters):
        self.args, self.number, self.counters = args, number, counters
        self.random = random.Random(f"{args.seed}/{number}/{os.getpid()}")
        random.seed(self.random.random())
        self.base = os.getpid() * 1_000_000 + self.random.randrange(1000) * 1000
        self.next = 0
        self.wire = None
        self.findings = collections.Counter()
        name = f"{args.notes}/{number}.{os.getpid()}"
        self.acknowledged = os.open(name + ".acknowledged", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self.undone = os.open(name + ".undone", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def id(self):
        self.next += 1
        return self.base + self.next

    def connect(self):
        user = self.random.choice(self.args.roles.split(","))
        self.wire = Wire(self.args, user)
        if self.random.random() < 0.3:
            self.wire.query("SET pg_sluice.class = 'side'")
        if self.random.random() < 0.2:
            self.wire.query("SET pg_sluice.queue_deadline = %d" % self.random.choice([-1, 1, 20, 300, 2147483647]))
        self.counters[self.number * 4] = self.wire.pid
        self.counters[self.number * 4 + 1] = self.wire.key

    def check(self, answer):
        for code, text in zip(answer.codes, answer.texts):
            self.findings[code] += 1
            if code not in EXPECTED:
                self.findings[f"unexpected {code} {text}"] += 1
        if answer.closed:
            raise Lost("ended by the server")
        return answer

    def query(self, sql):
        return self.check(self.wire.query(sql))

    def insert(self):
        new = self.id()
        return new, f"INSERT INTO work VALUES ({new}, {self.number})"

    def note(self, new, answer):
        """The transaction that inserted `new` ended with this answer: it is either in the table or not."""
        committed = not answer.codes and answer.tags and answer.tags[-1] in ("COMMIT", "INSERT 0 1")
        os.write(self.acknowledged if committed else self.undone, b"%d\n" % new)

    def settle(self):
        """A cancelled end of a transaction leaves it open."""
        while self.wire and self.wire.status != "I":
            self.query("ROLLBACK")

    # ---- the shapes ----

    def shape_select(self):
        self.query("SELECT count(*) FROM hot")

    def shape_autocommit(self):
        new, sql = self.insert()
        answer = self.query(sql)
        self.note(new, answer)

    def shape_transaction(self):
        new, sql = self.insert()
        begun = self.query("BEGIN")
        self.query(sql)
        self.query(f"UPDATE hot SET n = n + 1 WHERE id = {self.random.randrange(20)}")
        answer = self.query("COMMIT" if self.random.random() < 0.9 else "ROLLBACK")
        if begun.status == "T":
            self.note(new, answer)

    def shape_savepoints(self):
        new, sql = self.insert()
        begun = self.query("BEGIN")
        self.query("SAVEPOINT a")
        self.query("SELECT 1 / (random() * 0)::int" if self.random.random() < 0.5 else "SELECT 1")
        self.query("ROLLBACK TO a")
        inserted = self.query(sql)
        self.query("SAVEPOINT b")
        self.query("UPDATE hot SET n = n + 1 WHERE id = %d" % self.random.randrange(20))
        self.query("RELEASE b" if self.random.random() < 0.5 else "ROLLBACK TO b")
        answer = self.query("COMMIT")
        if begun.status == "T" and not inserted.codes:
            self.note(new, answer)

    def shape_one_string(self):
        new, sql = self.insert()
        answer = self.query(f"BEGIN; {sql}; SELECT count(*) FROM hot; COMMIT")
        self.note(new, answer)

    def shape_error(self):
        self.query(self.random.choice(["SELECT 1 / (random() * 0)::int", "BEGIN; SELECT 1 / (n - n) FROM hot; COMMIT",
                                       "SELECT count(*) FROM hot; SELECT 1 / (random() * 0)::int"]))

    def shape_pipeline(self):
        new, sql = self.insert()
        parts = [extended("SELECT n FROM hot WHERE id = 1"), extended(sql), extended("SELECT 1")]
        if self.random.random() < 0.2:
            parts.insert(2, extended("SELECT 1 / (random() * 0)::int"))
        self.wire.send(b"".join(parts) + SYNC)
        answer = self.check(self.wire.finish())
        os.write(self.undone if answer.codes else self.acknowledged, b"%d\n" % new)

    def shape_two_batches(self):
        self.wire.send(extended("SELECT 1") + SYNC + extended("SELECT count(*) FROM hot") + SYNC)
        self.check(self.wire.finish())
        self.check(self.wire.finish())

    def shape_half_portal(self):
        self.wire.send(extended("SELECT id FROM hot", b"half", 3) + FLUSH)
        time.sleep(self.random.random() * 0.01)
        if self.random.random() < 0.2:
            raise Lost("left with half a portal")
        self.wire.send(SYNC)
        self.check(self.wire.finish())

    def shape_two_phase(self):
        new, sql = self.insert()
        # A cancelled BEGIN would make the INSERT a transaction of its own.
        if self.query("BEGIN").status != "T":
            return
        inserted = self.query(sql)
        prepared = self.query(f"PREPARE TRANSACTION 'x{new}'")
        if prepared.codes or prepared.tags != ["PREPARE TRANSACTION"]:
            if not inserted.codes and prepared.status == "I":
                os.write(self.undone, b"%d\n" % new)
            return
        keep = self.random.random() < 0.5
        answer = self.query(f"{'COMMIT' if keep else 'ROLLBACK'} PREPARED 'x{new}'")
        if not answer.codes:
            os.write(self.acknowledged if keep else self.undone, b"%d\n" % new)

    def shape_procedure(self):
        self.query(f"CALL commits({self.random.randrange(1, 4)})")

    def shape_do(self):
        self.query("DO $$ BEGIN UPDATE hot SET n = n + 1 WHERE id = 3; ROLLBACK; PERFORM count(*) FROM hot; COMMIT; "
                   "PERFORM 1 / (random() * %d)::int; END $$" % self.random.choice([0, 1000000]))

    def shape_cursor(self):
        self.query("BEGIN")
        self.query("DECLARE c CURSOR FOR SELECT id FROM hot")
        self.query("FETCH 2 FROM c")
        self.query(self.random.choice(["COMMIT", "ROLLBACK"]))

    def shape_held_cursor(self):
        self.query("DECLARE h CURSOR WITH HOLD FOR SELECT id FROM hot")
        self.query("FETCH 2 FROM h")
        self.query("CLOSE ALL")

    def shape_copy(self):
        self.query(self.random.choice(["COPY hot TO STDOUT", "COPY scratch FROM STDIN", "COPY (SELECT count(*) FROM hot) TO STDOUT"]))

    def shape_function_call(self):
        self.wire.send(pack(b"F", struct.pack("!ihhh", self.args.function, 1, 0, 1) + struct.pack("!i", 1) + b"7" +
                            struct.pack("!h", 0)))
        self.check(self.wire.finish())

    def shape_timeout(self):
        self.query("SET statement_timeout = %d" % self.random.randrange(1, 40))
        self.query("SELECT pg_sleep(0.02)")
        self.query("SET statement_timeout = 0")

    def shape_utility(self):
        self.query(self.random.choice(["ANALYZE scratch", "CREATE TEMP TABLE IF NOT EXISTS tt (i int)", "NOTIFY news", "LISTEN news",
                                       "EXPLAIN ANALYZE SELECT count(*) FROM hot", "SHOW work_mem", "VACUUM scratch",
                                       "TRUNCATE scratch", "BEGIN; LOCK TABLE scratch; COMMIT", "SELECT pg_sleep(0.005)"]))

    def shape_named(self):
        """One request, named, and sent again as it is: what is acknowledged was executed once, and the repetition is a duplicate."""
        new, sql = self.insert()
        name = uuid.uuid4()
        committed = False
        for _ in range(3):
            if self.query("BEGIN").status != "T" or self.query(f"SET LOCAL pg_sluice.ticket = '{name}'").codes:
                return
            self.query(sql)
            answer = self.query("COMMIT")
            if answer.codes:  # cancelled
                return
            committed = answer.tags == ["COMMIT"]
            if committed:
                self.note(new, answer)
                break
        if not committed or self.query("BEGIN").status != "T" or self.query(f"SET LOCAL pg_sluice.ticket = '{name}'").codes:
            return
        again = self.wire.query(sql)
        self.findings.update(f"repeated: {code}" for code in again.codes)
        if again.closed:
            raise Lost("ended by the server")
        if "23505" in again.codes and self.args.exactly_once:
            self.findings["unexpected second execution of one request"] += 1

    def shape_shared_name(self):
        """A name that all sessions of a role use at once, in every kind of transaction."""
        name = "5eed0000-0000-4000-8000-%012d" % self.random.randrange(3)
        self.query(f"SET pg_sluice.ticket = '{name}'")
        self.query(self.random.choice(["SELECT count(*) FROM hot", "BEGIN; SELECT count(*) FROM hot; COMMIT; SELECT 1", "CALL commits(3)",
                                       "BEGIN; SAVEPOINT a; UPDATE hot SET n = n + 1 WHERE id = 4; ROLLBACK TO a; COMMIT",
                                       f"SET pg_sluice.ticket = '{uuid.uuid4()}'; SELECT pg_sleep(0.003)"]))
        self.settle()
        self.query(self.random.choice(["RESET pg_sluice.ticket", "SET pg_sluice.ticket = ''", "DISCARD ALL"]))

    def shape_long(self):
        """Holds its permit beyond the time a borrowed one is lent for, then commits: a cancel meets it anywhere, or a commit first."""
        new, sql = self.insert()
        begun = self.query("BEGIN")
        inserted = self.query(sql)
        self.query("SELECT pg_sleep(%f)" % (self.random.random() * 0.12))
        answer = self.query("COMMIT")
        if begun.status == "T" and not inserted.codes:
            self.note(new, answer)

    def shape_reconnect(self):
        self.wire.close()
        self.connect()

    def shape_disconnect(self):
        """Leaves in the middle: a running statement, an open transaction, an unfinished batch."""
        what = self.random.randrange(3)
        if what == 0:
            self.wire.send(pack(b"Q", b"SELECT pg_sleep(0.01)\0"))
        elif what == 1:
            self.query("BEGIN")
            self.query("SELECT 1")
        else:
            self.wire.send(extended("SELECT 1") + FLUSH)
        raise Lost("left in the middle")

    SHAPES = ([shape_select] * 14 + [shape_autocommit] * 14 + [shape_transaction] * 12 + [shape_savepoints] * 8 + [shape_one_string] * 6 +
              [shape_error] * 4 + [shape_pipeline] * 8 + [shape_two_batches] * 4 + [shape_half_portal] * 3 + [shape_two_phase] * 4 +
              [shape_procedure] * 3 + [shape_do] * 3 + [shape_cursor] * 4 + [shape_held_cursor] * 2 + [shape_copy] * 4 +
              [shape_function_call] * 4 + [shape_timeout] * 3 + [shape_utility] * 4 + [shape_named] * 4 + [shape_shared_name] * 3 +
              [shape_long] * 3 + [shape_reconnect] * 1 + [shape_disconnect] * 2)

    def run(self, until):
        while self.counters[-1] == WAIT:
            time.sleep(0.05)
        while time.time() < until and self.counters[-1] == GO:
            try:
                if self.wire is None:
                    self.connect()
                self.random.choice(self.SHAPES)(self)
                self.settle()
                self.counters[self.number * 4 + 2] += 1
            except Refused as refused:
                self.findings[f"login {refused}"] += 1
                if str(refused) not in EXPECTED:
                    self.findings[f"unexpected login {refused}"] += 1
                self.wire = None
                time.sleep(0.05)
            except Lost:
                if self.wire:
                    self.wire.close()
                self.wire = None
            except TimeoutError as error:
                self.findings[f"unexpected {error}"] += 1
                self.wire.close()
                self.wire = None
        return self.findings


def work(args, number, counters, results, until):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(5)  # so that the server and whoever disturbs get their turn
    worker = Worker(args, number, counters)
    results.put((number, dict(worker.run(until))))


def cancel(args, counters, number):
    pid, key = counters[number * 4], counters[number * 4 + 1]
    if not pid:
        return
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(5)
            sock.connect(f"{args.socket}/.s.PGSQL.{args.port}")
            sock.sendall(struct.pack("!iiii", 16, 80877102, pid, key))
    except OSError:
        pass


def start(args, number, counters, results, until):
    process = multiprocessing.Process(target=work, args=(args, number, counters, results, until), daemon=True)
    process.start()
    return process


def disturb(args, counters, workers, results, until, done):
    """Cancels, terminates and kills at random until enough was done, and each of them at least once; returns how often."""
    chance = random.Random(args.seed)
    administrator = Wire(args, args.admin, "disturber")
    did = collections.Counter()
    while time.time() < until and not (done() and all(did[what] for what in ("cancel", "terminate", "kill"))):
        time.sleep(chance.random() * 0.06)
        for number in chance.sample(range(args.workers), 4):
            cancel(args, counters, number)
            did["cancel"] += 1
        number = chance.randrange(args.workers)
        what = chance.random()
        if what < 0.3:
            administrator.query(f"SELECT pg_terminate_backend({counters[number * 4]})")
            did["terminate"] += 1
        elif what < 0.4:
            process = workers[number]
            if process.pid and process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
                process.join()
            workers[number] = start(args, number, counters, results, until)
            did["kill"] += 1
    return did


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--port", required=True)
    parser.add_argument("--admin", required=True)
    parser.add_argument("--roles", required=True)
    parser.add_argument("--notes", required=True, help="folder for the ids that were acknowledged and undone")
    parser.add_argument("--function", type=int, required=True, help="oid of a function (int) for function call messages")
    parser.add_argument("--workers", type=int, default=40)
    parser.add_argument("--transactions", type=int, default=20000, help="stop when so many shapes ran")
    parser.add_argument("--also-until", help="and go on until there is this file")
    parser.add_argument("--seconds", type=float, default=120, help="stop in any case")
    parser.add_argument("--exactly-once", type=int, default=0, help="1: a named request that has run never runs again")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    started = time.time()
    until = started + args.seconds
    # Four numbers a worker (backend pid, cancel key, shapes done, unused), and the word for them all.
    # Without a lock: a worker that is killed while it holds one would stop all of them.
    counters = multiprocessing.Array("q", args.workers * 4 + 1, lock=False)
    # Results come through a pipe of a writer that may be killed: a manager's queue is not torn by that.
    results = multiprocessing.Manager().Queue()

    def done():
        enough = sum(counters[i * 4 + 2] for i in range(args.workers)) >= args.transactions
        return enough and (not args.also_until or os.path.exists(args.also_until))

    workers = [start(args, number, counters, results, until) for number in range(args.workers)]
    counters[-1] = GO
    did = disturb(args, counters, workers, results, until, done)
    counters[-1] = STOP
    findings = collections.Counter()
    for process in workers:
        process.join(ANSWER_SECONDS + 10)
        if process.is_alive():
            findings["unexpected worker that does not end"] += 1
            os.kill(process.pid, signal.SIGKILL)
    while not results.empty():
        findings.update(results.get()[1])
    print(json.dumps({"shapes": sum(counters[i * 4 + 2] for i in range(args.workers)), "seconds": round(time.time() - started, 1),
                      "did": did, "answers": {key: value for key, value in findings.items() if not key.startswith("unexpected")},
                      "unexpected": {key: value for key, value in findings.items() if key.startswith("unexpected")}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
