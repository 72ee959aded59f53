"""Real clients through the proxy: psql, pgbench, psycopg2, psycopg 3 with its pipeline, asyncpg. Two servers are shared by each
client and a rival, so that prepared statements and settings have to follow."""
import asyncio
import os
import subprocess
import threading

import asyncpg
import psycopg
import psycopg2
import psycopg2.extras
import pytest
from conftest import PASSWORDS


def dsn(proxy, **more):
    return " ".join(f"{k}='{v}'" for k, v in dict(host="127.0.0.1", port=proxy.port, user="app", dbname="app", password=PASSWORDS["app"],
                                                    sslmode="require", **more).items())


def run(proxy, *command, stdin=None):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, input=stdin, check=False, env={
        **os.environ, "PGHOST": "127.0.0.1", "PGPORT": str(proxy.port), "PGUSER": "app", "PGDATABASE": "app", "PGPASSWORD": PASSWORDS["app"],
        "PGSSLMODE": "require"})
    assert done.returncode == 0, done.stderr
    return done.stdout


class Rival:
    """Another client that keeps opening and ending transactions, so that nobody has the same server for long."""

    def __init__(self, proxy):
        self.proxy, self.stop, self.fault = proxy, threading.Event(), None
        self.thread = threading.Thread(target=self.work)

    def work(self):
        try:
            with self.proxy.client() as client:
                while not self.stop.is_set():
                    client.query("BEGIN")
                    client.query("SELECT pg_sleep(0.002)")
                    client.query("COMMIT")
        except Exception as fault:
            self.fault = fault

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()
        assert self.fault is None, self.fault


def test_psql(proxy):
    r"""psql: queries, variables, \copy in both directions, \d, an error in a transaction"""
    script = r"""
\set ON_ERROR_STOP off
DROP TABLE IF EXISTS by_psql;
CREATE TABLE by_psql (n int, t text);
\copy by_psql FROM STDIN
1	one
2	two
\.
\copy (SELECT * FROM by_psql ORDER BY n) TO STDOUT
\set who 'world'
SELECT 'hello ' || :'who';
BEGIN;
SELECT 1/0;
ROLLBACK;
SET work_mem = '5MB';
SHOW work_mem;
\d by_psql
SELECT n, t FROM by_psql ORDER BY n \gx
DROP TABLE by_psql;
"""
    with Rival(proxy):
        out = run(proxy, "psql", "-X", "-q", "-A", "-t", stdin=script)
    for words in ("1\tone\n2\ttwo\n", "hello world", "5MB", "n|integer", "t|one"):
        assert words in out, out


@pytest.mark.parametrize("protocol", ["simple", "extended", "prepared"])
def test_pgbench(proxy, server, protocol):
    """pgbench: its own transactions of six clients, none failed"""
    run(proxy, "pgbench", "-q", "-i", "-s", "1")
    # A thread for each client: pgbench prepares with a call that blocks its thread, and with it other clients of the same thread
    # in the middle of their transactions, which then hold the very servers that the call waits for.
    out = run(proxy, "pgbench", "-n", "-M", protocol, "-c", "6", "-j", "6", "-t", "150")
    assert "number of transactions actually processed: 900/900" in out and "number of failed transactions: 0" in out
    assert server.run("SELECT count(*) FROM pgbench_history", database="app") == "900"


def test_psycopg2(proxy):
    """psycopg2: parameters, named cursor, COPY, autocommit, error and recovery, cancel"""
    with Rival(proxy):
        connection = psycopg2.connect(dsn(proxy))
        with connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE IF NOT EXISTS by_psycopg2 (n int, t text)")
            psycopg2.extras.execute_values(cursor, "INSERT INTO by_psycopg2 VALUES %s", [(n, f"t{n}") for n in range(500)])
            with connection.cursor("streaming") as stream:
                stream.itersize = 50
                stream.execute("SELECT n FROM by_psycopg2 ORDER BY n")
                assert [row[0] for row in stream] == list(range(500))
        with pytest.raises(psycopg2.errors.DivisionByZero), connection, connection.cursor() as cursor:
            cursor.execute("SELECT 1/%s", (0,))
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM by_psycopg2 WHERE t LIKE %s", ("t1%",))
            assert cursor.fetchone()[0] == 111
        timer = threading.Timer(0.3, connection.cancel)
        timer.start()
        with pytest.raises(psycopg2.errors.QueryCanceled), connection, connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(30)")
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE by_psycopg2")
        connection.close()


def test_psycopg3(proxy):
    """psycopg 3: server-side prepared statements, pipeline mode with an error in it, COPY, 200 distinct queries"""
    with Rival(proxy), psycopg.connect(dsn(proxy), prepare_threshold=0, autocommit=True) as connection:
        connection.prepared_max = 20
        for n in range(200):
            assert connection.execute(f"SELECT {n} + %s", (1,)).fetchone() == (n + 1,)
        with connection.pipeline():
            cursors = [connection.execute("SELECT %s::int", (n,)) for n in range(50)]
            assert [cursor.fetchone()[0] for cursor in cursors] == list(range(50))
        with pytest.raises(psycopg.errors.DivisionByZero), connection.pipeline() as pipeline:
            connection.execute("SELECT 1")
            connection.execute("SELECT 1/0")
            connection.execute("SELECT 2")
            pipeline.sync()
        connection.execute("DROP TABLE IF EXISTS by_psycopg3")
        connection.execute("CREATE TABLE by_psycopg3 (n int)")
        with connection.cursor() as cursor, cursor.copy("COPY by_psycopg3 FROM STDIN") as copy:
            for n in range(1000):
                copy.write_row((n,))
        with connection.transaction():
            assert connection.execute("SELECT sum(n) FROM by_psycopg3").fetchone() == (499500,)
        connection.execute("DROP TABLE by_psycopg3")


def test_asyncpg(proxy):
    """asyncpg: its named statements and type look-ups, transactions, cursors, COPY, with and without its cache"""
    async def work(**more):
        connection = await asyncpg.connect(host="127.0.0.1", port=proxy.port, user="app", database="app", password=PASSWORDS["app"], **more)
        for n in range(60):
            assert await connection.fetchval("SELECT $1::int + 1", n) == n + 1
        assert await connection.fetchval("SELECT ARRAY[1, 2]::int[]") == [1, 2]
        await connection.execute("DROP TABLE IF EXISTS by_asyncpg")
        await connection.execute("CREATE TABLE by_asyncpg (n int, j jsonb)")
        await connection.copy_records_to_table("by_asyncpg", records=[(n, "{}") for n in range(300)])
        async with connection.transaction():
            assert [row["n"] async for row in connection.cursor("SELECT n FROM by_asyncpg ORDER BY n")] == list(range(300))
        try:
            await connection.fetchval("SELECT 1/0")
            raise AssertionError("no error came")
        except asyncpg.DivisionByZeroError:
            pass
        await connection.reset()
        await connection.execute("DROP TABLE by_asyncpg")
        await connection.close()

    with Rival(proxy):
        asyncio.run(work())
        asyncio.run(work(statement_cache_size=0))
