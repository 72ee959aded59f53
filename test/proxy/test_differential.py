"""Random message sequences, valid and not, must be answered through the proxy as PostgreSQL answers them directly. Each seed is a
session of its own; the failing seed and step are printed, and SLUICE_SEED replays one."""
import os
import random

import pytest

from wire import (COPY_DONE, FLUSH, SYNC, bind, close_portal, close_statement, copy_data, copy_fail, describe_portal,
                  describe_statement, execute, parse, query)

STEPS = 40
SEEDS = [int(os.environ["SLUICE_SEED"])] if "SLUICE_SEED" in os.environ else list(range(1, 25)) + [random.SystemRandom().randrange(1 << 31)]

STATEMENTS = ["SELECT 1", "SELECT $1::int + 1", "SELECT generate_series(1, 5)", "SELECT 1/0", "SELEC", "", "SELECT no_such_column",
              "INSERT INTO scratch VALUES (1) RETURNING n", "INSERT INTO scratch VALUES (NULL)", "SELECT count(*) FROM scratch",
              "UPDATE scratch SET n = n + 1", "DELETE FROM scratch", "SHOW timezone", "SHOW work_mem", "VALUES (1, 'a'), (2, 'b')",
              "SELECT repeat('x', 20000)", "DO $$ BEGIN RAISE NOTICE 'hello'; END $$", "SELECT current_setting('my.setting', true)",
              "SELECT '01/02/2024'::date", "SELECT current_user", "SELECT 'a' || $1::text"]
SIMPLE = STATEMENTS + ["BEGIN", "BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT one", "ROLLBACK TO one", "RELEASE one", "BEGIN; SELECT 1",
                       "SELECT 1; SELECT 2/0; SELECT 3", "COMMIT; BEGIN; SELECT 1", "SET work_mem = '5MB'", "SET timezone = 'Asia/Tokyo'",
                       "SET LOCAL work_mem = '6MB'", "RESET work_mem", "RESET ALL", "SET datestyle = 'German'", "SET my.setting = 'mine'",
                       "SELECT set_config('work_mem', '7MB', false)", "SELECT set_config('my.setting', 'local', true)",
                       "DISCARD ALL", "DEALLOCATE ALL", "PREPARE sql_one AS SELECT 11", "EXECUTE sql_one", "DEALLOCATE sql_one",
                       "DECLARE c CURSOR FOR SELECT generate_series(1, 4)", "FETCH 2 FROM c", "CLOSE c", "ROLLBACK AND CHAIN"]
NAMES = ["", "", "one", "two", "three"]
PORTALS = ["", "", "p", "q"]


def batch(rng):
    """A batch of extended messages with its Sync; Flush here and there, and now and then none of it makes sense."""
    found = []
    for _ in range(rng.randrange(1, 7)):
        statement, portal = rng.choice(NAMES), rng.choice(PORTALS)
        found.append(rng.choice([
            lambda: parse(rng.choice(STATEMENTS), statement),
            lambda: parse(rng.choice(STATEMENTS), statement) + bind(statement, portal) + execute(portal),
            lambda: parse(rng.choice(STATEMENTS), statement) + bind(statement, portal, (7,)) + describe_portal(portal) + execute(portal),
            lambda: bind(statement, portal) + execute(portal, rng.choice((0, 2))),
            lambda: bind(statement, portal, ("5",)),
            lambda: execute(portal, rng.choice((0, 1, 3))),
            lambda: describe_statement(statement),
            lambda: describe_portal(portal),
            lambda: close_statement(statement),
            lambda: close_portal(portal),
            lambda: FLUSH,
        ])())
    return b"".join(found) + SYNC, 1


def extended_copy(sql):
    """A name of its own, closed at once: whatever else met it would be inside of a COPY, where PostgreSQL ends the connection."""
    return parse(sql, "copying") + bind("copying", "copying") + execute("copying")


CLOSE_COPY = close_portal("copying") + close_statement("copying") + SYNC


def copy(rng):
    """COPY in one of its forms. A statement that fails before it copies leaves CopyData behind, which is then ignored."""
    data = b"".join(rng.choice((b"1\n", b"22\n", b"\\N\n", b"wrong\n")) for _ in range(rng.randrange(4)))
    end = rng.choice((COPY_DONE, copy_fail("no more")))
    return rng.choice([
        lambda: (query("COPY scratch FROM STDIN") + copy_data(data) + end, 1),
        lambda: (extended_copy("COPY scratch FROM STDIN") + copy_data(data) + end + SYNC + CLOSE_COPY, 2),
        lambda: (query("COPY scratch TO STDOUT"), 1),
        lambda: (extended_copy("COPY (SELECT generate_series(1, 3)) TO STDOUT") + SYNC + CLOSE_COPY, 2),
    ])()


def step(rng):
    kind = rng.random()
    if kind < 0.45:
        return query(rng.choice(SIMPLE)), 1
    if kind < 0.88:
        return batch(rng)
    if kind < 0.95:
        return copy(rng)
    return rng.choice([(SYNC, 1), (SYNC + SYNC, 2), (close_statement("one") + FLUSH + SYNC, 1)])


def run(client, steps, rng, pipelined):
    """The answers, step by step. Reported settings come in one place, just before Z, but not in one order."""
    client.query("DROP TABLE IF EXISTS scratch")
    client.query("CREATE TABLE scratch (n int NOT NULL)")
    answers = []
    if pipelined:
        data = b"".join(part for part, _ in steps)
        cuts = sorted(rng.randrange(len(data)) for _ in range(10))
        for begin, end in zip([0] + cuts, cuts + [len(data)]):
            client.send(data[begin:end])
        for _, count in steps:
            answers.append(client.answers(count, leave_out="N"))
    else:
        for data, count in steps:
            answers.append(client.send(data).answers(count, leave_out="N"))
    client.send(query("ROLLBACK"), query("DROP TABLE scratch")).read_until("Z", 2)
    return answers


@pytest.mark.parametrize("pipelined", [False, True], ids=["step by step", "pipelined"])
def test_same_answers(server, pipelined):
    """random sequences are answered as PostgreSQL answers them"""
    for seed in SEEDS:
        steps = [step(random.Random(seed * 1000 + n)) for n in range(STEPS)]
        with server.client() as client:
            expected = run(client, steps, random.Random(seed), pipelined)
        with server.client() as client:
            found = run(client, steps, random.Random(seed), pipelined)
        for n, (reference, answer) in enumerate(zip(expected, found)):
            assert answer == reference, f"seed {seed} step {n}: {steps[n][0][:300]}\n  before: {[s[0][:120] for s in steps[max(0, n - 3):n]]}"
    assert server.run("SELECT count(*) FROM pg_stat_activity WHERE usename = 'app' AND state LIKE 'idle in%'") == "0"
