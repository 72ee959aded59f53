"""What a client set, prepared or took stays its own and follows it (cases C9, C11 to C14, C24, G3 to G12, G14, G15)."""
import time

import pytest

from conftest import wait_until
from wire import FLUSH, SYNC, bind, close_statement, describe_statement, execute, parse, query


def rounds(client, rival, count=6):
    """Makes the two change servers: each round both have a transaction open at once."""
    for _ in range(count):
        rival.query("BEGIN")
        yield
        rival.query("COMMIT")


def test_settings_follow(proxy):
    """settings follow a client over its servers, and reach nobody else"""
    with proxy.client() as client, proxy.client() as rival:
        assert client.query("SET work_mem = '7MB'; SET timezone = 'Asia/Tokyo'") == "C[SET] C[SET] Z"
        assert client.query("SELECT set_config('statement_timeout', '12345', false)") == "D[12345ms] C[SELECT 1] Z"
        for _ in rounds(client, rival):
            assert client.value("SELECT current_setting('work_mem') || current_setting('timezone') || current_setting('statement_timeout')") == (
                "7MBAsia/Tokyo12345ms")
            assert rival.value("SELECT current_setting('work_mem') || current_setting('statement_timeout')") == "4MB0"


def test_settings_in_blocks(proxy):
    """settings made in DO blocks, functions and savepoints follow too, and undone ones do not"""
    with proxy.client() as client, proxy.client() as rival:
        client.query("DO $$ BEGIN PERFORM set_config('work_mem', '8MB', false); END $$")
        client.query("BEGIN")
        client.query("SAVEPOINT s")
        client.query("SET temp_buffers = '9MB'")
        client.query("ROLLBACK TO s")
        client.query("SET lock_timeout = '3s'")
        client.query("COMMIT")
        client.query("BEGIN")
        client.query("SET lock_timeout = '4s'")
        client.query("ROLLBACK")
        for _ in rounds(client, rival):
            assert client.value("SELECT current_setting('work_mem') || ' ' || current_setting('temp_buffers') || ' ' || current_setting('lock_timeout')") == (
                "8MB 8MB 3s")
            assert rival.value("SELECT current_setting('work_mem') || current_setting('lock_timeout')") == "4MB0"


def test_reset(proxy):
    """RESET and RESET ALL bring back the startup packet's values, not the server's"""
    with proxy.client(TimeZone="Europe/Paris") as client, proxy.client() as rival:
        client.query("SET timezone = 'UTC'")
        client.query("RESET timezone")
        for _ in rounds(client, rival, 2):
            assert client.value("SHOW timezone") == "Europe/Paris"
        client.query("SET timezone = 'UTC'")
        client.query("RESET ALL")
        for _ in rounds(client, rival, 2):
            assert client.value("SHOW timezone") == "Europe/Paris"


def test_custom_parameter(proxy):
    """app.tenant, the pattern of row security: it follows, and nobody else can see that it exists"""
    with proxy.client() as client, proxy.client() as rival:
        client.query("SET app.tenant = 'mine'")
        for _ in rounds(client, rival):
            assert client.value("SELECT current_setting('app.tenant', true)") == "mine"
            assert rival.value("SELECT current_setting('app.tenant', true) IS NULL") == "t"


def test_role(proxy, server):
    """SET ROLE follows its client and no other"""
    server.run("DROP ROLE IF EXISTS costume; CREATE ROLE costume; GRANT costume TO app")
    with proxy.client() as client, proxy.client() as rival:
        client.query("SET ROLE costume")
        for _ in rounds(client, rival):
            assert client.value("SELECT current_user") == "costume"
            assert rival.value("SELECT current_user") == "app"
        client.query("RESET ROLE")
        for _ in rounds(client, rival, 2):
            assert client.value("SELECT current_user") == "app"


def test_case_c12(proxy, server):
    """case C12: an emptied search_path of one client does not make others read nothing"""
    server.run("CREATE TABLE IF NOT EXISTS c12 (n int); GRANT ALL ON c12 TO app", database="app")
    with proxy.client() as client, proxy.client() as rival:
        client.query("SELECT pg_catalog.set_config('search_path', '', false)")
        for _ in rounds(client, rival):
            assert rival.query("SELECT count(*) FROM c12") == "D[0] C[SELECT 1] Z[T]"
            assert client.query("SELECT count(*) FROM c12") == "E[42P01] Z"


def test_case_c13(proxy):
    """case C13: a session's advisory lock is refused with a hint, or gone with its connection"""
    with proxy.client() as client, proxy.client() as rival:
        first = client.query("SELECT pg_advisory_lock(13)")
        assert first in ("E[0A000] Z", "D[] C[SELECT 1] Z")
        assert wait_until(lambda: rival.value("SELECT pg_try_advisory_lock(13)") == "t") if first[0] == "D" else True
        assert client.query("SELECT pg_advisory_xact_lock(13)") == "D[] C[SELECT 1] Z"


def test_case_c14(proxy):
    """case C14: client_min_messages of one client does not silence another"""
    with proxy.client() as client, proxy.client() as rival:
        client.query("SET client_min_messages TO error")
        for _ in rounds(client, rival):
            rival.send(query("DO $$ BEGIN RAISE NOTICE 'heard'; END $$"))
            assert any(m.kind == "N" for m in rival.read_until())
            client.send(query("DO $$ BEGIN RAISE NOTICE 'unheard'; END $$"))
            assert not any(m.kind == "N" for m in client.read_until())


def test_case_c9(proxy):
    """case C9: LISTEN in a pipeline is refused in place, the rest is skipped to Sync, one Z"""
    with proxy.client() as client:
        client.send(parse("LISTEN q"), bind(), execute(), parse("SELECT 1"), bind(), execute(), SYNC)
        assert client.answers() == "E[0A000] Z"
        assert client.query("LISTEN q") == "E[0A000] Z"
        assert client.query("SELECT 2") == "D[2] C[SELECT 1] Z"


@pytest.mark.parametrize("sql", ["LISTEN q", "CREATE TEMPORARY TABLE t (n int)", "SELECT pg_advisory_lock(1)",
                                 "DECLARE c CURSOR WITH HOLD FOR SELECT 1"])
def test_refused_in_transaction(proxy, sql):
    """what cannot be tracked is refused by the server inside of a transaction, whose state is as after any error"""
    with proxy.client() as client:
        assert client.query("BEGIN") == "C[BEGIN] Z[T]"
        assert client.query(sql) == "E[0A000] Z[E]"
        assert client.query("SELECT 1") == "E[25P02] Z[E]"
        assert client.query("ROLLBACK") == "C[ROLLBACK] Z"


def test_untracked_session(make_proxy):
    """untracked = session: the client keeps its server, at most half of them may"""
    with make_proxy(pool={"max_size": 2, "untracked": "session"}) as proxy, proxy.client() as client, proxy.client() as rival:
        assert client.query("CREATE TEMPORARY TABLE mine AS SELECT 5 AS n") == "C[SELECT 1] Z"
        for _ in range(4):
            assert client.query("SELECT n FROM mine") == "D[5] C[SELECT 1] Z"
            assert rival.query("SELECT 1") == "D[1] C[SELECT 1] Z"
        assert rival.query("CREATE TEMPORARY TABLE mine (n int)") == "E[53000] Z"
        assert client.query("LISTEN q") == "C[LISTEN] Z"


def test_untracked_discard(make_proxy):
    """untracked = discard: it runs, and the connection is not reused"""
    with make_proxy(pool={"max_size": 2, "untracked": "discard"}) as proxy, proxy.client() as client:
        first = client.value("SELECT pg_backend_pid()")
        assert client.query("SELECT pg_advisory_lock(77)") == "D[] C[SELECT 1] Z"
        assert wait_until(lambda: client.value("SELECT pg_try_advisory_xact_lock(77)") == "t")
        assert client.value("SELECT count(*) FROM pg_stat_activity WHERE pid = " + first) == "0"


def test_session_mode(make_proxy, server):
    """a pool in session mode: one client, one server, everything is allowed"""
    with make_proxy(pool={"mode": "session", "max_size": 2}) as proxy, proxy.client() as client:
        pid = client.value("SELECT pg_backend_pid()")
        assert client.query("CREATE TEMPORARY TABLE mine (n int)") == "C[CREATE TABLE] Z"
        assert client.query("LISTEN q") == "C[LISTEN] Z"
        assert client.query("SELECT pg_advisory_lock(5)") == "D[] C[SELECT 1] Z"
        for _ in range(3):
            assert client.value("SELECT pg_backend_pid()") == pid


def test_case_c24(proxy):
    """case C24: DISCARD ALL resets the client to its startup values and nobody else; 25001 inside a transaction"""
    with proxy.client(application_name="c24") as client, proxy.client() as rival:
        client.send(parse("SELECT 24", "kept"), SYNC).answers()
        client.query("SET work_mem = '9MB'")
        rival.query("SET work_mem = '6MB'")
        client.send(parse("DISCARD ALL"), bind(), execute(), SYNC)
        assert client.answers() == "1 2 C[DISCARD ALL] Z"
        for _ in rounds(client, rival, 2):
            assert client.value("SHOW work_mem") == "4MB" and client.value("SHOW application_name") == "c24"
            assert rival.value("SHOW work_mem") == "6MB"
        assert client.send(bind("kept"), execute(), SYNC).answers() == "E[26000] Z"
        client.query("BEGIN")
        assert client.query("DISCARD ALL") == "E[25001] Z[E]"
        client.query("ROLLBACK")


def test_statements_follow(proxy):
    """named statements follow a client to servers that have never seen them"""
    with proxy.client() as client, proxy.client() as rival:
        client.send(parse("SELECT $1::int + 100", "s1"), describe_statement("s1"), SYNC)
        assert client.answers() == "1 Z"
        rival.send(parse("SELECT 'other s1'", "s1"), SYNC).answers()
        for n, _ in enumerate(rounds(client, rival)):
            assert client.send(bind("s1", "", (n,)), execute(), SYNC).answers() == f"2 D[{n + 100}] C[SELECT 1] Z"
            assert rival.send(bind("s1"), execute(), SYNC).answers() == "2 D[other s1] C[SELECT 1] Z[T]"


def test_error_shows_own_name(proxy):
    """an error about a statement shows the client's own name for it"""
    with proxy.client() as client:
        client.send(parse("SELECT $1::int", "my_statement"), SYNC).answers()
        found = client.send(bind("my_statement"), execute(), SYNC).read_until()
        words = next(m for m in found if m.kind == "E").fields["M"]
        assert "my_statement" in words
        found = client.send(bind("unknown_one"), execute(), SYNC).read_until()
        assert next(m for m in found if m.kind == "E").fields["M"] == 'prepared statement "unknown_one" does not exist'


def test_literals_are_not_shared(proxy):
    """a statement with a date literal means to each client what its own settings say"""
    with proxy.client(DateStyle="ISO, MDY") as american, proxy.client(DateStyle="ISO, DMY") as european:
        for client in (american, european):
            client.send(parse("SELECT '01/02/2024'::date", "day"), SYNC).answers()
        for _ in range(4):
            assert american.send(bind("day"), execute(), SYNC).answers() == "2 D[2024-01-02] C[SELECT 1] Z"
            assert european.send(bind("day"), execute(), SYNC).answers() == "2 D[2024-02-01] C[SELECT 1] Z"


def test_case_g8(make_proxy):
    """case G8: Prisma's flow from three clients over one server"""
    with make_proxy(pool={"max_size": 1}) as proxy:
        clients = [proxy.client() for _ in range(3)]
        for client in clients:
            client.query('SET search_path = "public"')
            client.query("SET NAMES 'UTF8'")
        for round_number in range(3):
            for n, client in enumerate(clients):
                client.query("BEGIN")
                assert client.query("DEALLOCATE ALL") == "C[DEALLOCATE ALL] Z[T]"
                client.send(parse(f"SELECT {n}", "s0"), describe_statement("s0"), SYNC)
                assert client.answers() == "1 Z[T]"
                assert client.send(bind("s0"), execute(), SYNC).answers() == f"2 D[{n}] C[SELECT 1] Z[T]"
                assert client.query("COMMIT") == "C[COMMIT] Z", round_number
        for client in clients:
            client.socket.close()


def test_case_g9(proxy):
    """case G9: 200 named statements, DEALLOCATE by SQL, Close of unknown ones"""
    with proxy.client() as client:
        for n in range(200):
            name = f"_pg3_{n}"
            assert client.send(parse(f"SELECT {n}", name), bind(name), execute(), SYNC).answers() == f"1 2 D[{n}] C[SELECT 1] Z"
            if n >= 100:
                old = f"_pg3_{n - 100}"
                if n % 2:
                    assert client.query(f"DEALLOCATE {old}") == "C[DEALLOCATE] Z"
                else:
                    assert client.send(close_statement(old), SYNC).answers() == "3 Z"
                assert client.send(bind(old), execute(), SYNC).answers() == "E[26000] Z"


def test_cap_on_statements(make_proxy):
    """too many named statements of one client are refused with 54000"""
    with make_proxy(pool={"max_client_statements": 10}) as proxy, proxy.client() as client:
        for n in range(10):
            assert client.send(parse("SELECT 1", f"s{n}"), SYNC).answers() == "1 Z"
        assert client.send(parse("SELECT 1", "one_more"), SYNC).answers() == "E[54000] Z"
        assert client.query("SELECT 1") == "D[1] C[SELECT 1] Z"


def test_many_closes(proxy):
    """1,600 Closes without a Sync do not hang: what is owed is capped with a Flush"""
    with proxy.client() as client:
        client.send(close_statement("none") * 1600, SYNC)
        assert client.answers() == " ".join(["3"] * 1600) + " Z"


def test_case_g5(proxy):
    """cases G5, G6, G10: unnamed Parse and Bind in batches of their own, with a rival between them"""
    with proxy.client() as client, proxy.client() as rival:
        for n in range(20):
            client.send(parse("SELECT $1::int"), describe_statement(), SYNC)
            assert client.answers() == "1 Z"
            rival.send(parse("SELECT 'rival'"), bind(), execute(), SYNC)
            assert rival.answers() == "1 2 D[rival] C[SELECT 1] Z"
            rival.query("BEGIN")
            client.send(bind("", "", (n,)), execute(), SYNC)
            assert client.answers() == f"2 D[{n}] C[SELECT 1] Z"
            rival.query("COMMIT")
        client.send(parse("SELECT 10"), describe_statement(), FLUSH)
        assert [str(client.read()) for _ in range(3)] == ["1", "t", "T"]
        assert client.send(bind(), execute(), SYNC).answers() == "2 D[10] C[SELECT 1] Z"


def test_case_g11(proxy):
    """case G11: ActiveRecord's SETs after login follow the client"""
    with proxy.client() as client, proxy.client() as rival:
        for sql in ("SET client_min_messages TO 'warning'", "SET standard_conforming_strings = on", "SET intervalstyle = iso_8601",
                    "SET SESSION timezone TO 'UTC'"):
            assert client.query(sql) == "C[SET] Z"
        for _ in rounds(client, rival):
            assert client.value("SELECT current_setting('client_min_messages') || current_setting('intervalstyle')") == "warningiso_8601"


def test_case_g12(proxy):
    """case G12: WITH HOLD is refused at DECLARE, with the option to set in the hint"""
    with proxy.client() as client:
        found = client.send(query("DECLARE n CURSOR WITH HOLD FOR SELECT 1")).read_until()
        fields = next(m for m in found if m.kind == "E").fields
        assert fields["C"] == "0A000" and "untracked" in fields.get("H", "") + fields["M"]


def test_case_g14(proxy, server):
    """case G14: at most one SET for each pair of client and server"""
    server.run("ALTER ROLE app SET log_statement = 'all'")
    try:
        with proxy.client(DateStyle="ISO", application_name="g14") as client:
            log = server.folder / "server.log"
            before = log.read_text().count("SET ")
            for n in range(100):
                assert client.query(f"SELECT {n}") == f"D[{n}] C[SELECT 1] Z"
            time.sleep(0.2)
            assert log.read_text().count("SET ") - before <= 4
    finally:
        server.run("ALTER ROLE app RESET log_statement")


def test_case_g15(make_proxy, server):
    """case G15: what a client is greeted with comes from a server of its own role and database"""
    server.run("ALTER ROLE other SET timezone = 'Asia/Kolkata'")
    try:
        with make_proxy() as proxy:
            with proxy.client(user="other", database="postgres") as client:
                assert client.parameters["TimeZone"] == "Asia/Kolkata"
            with proxy.client() as client:
                assert client.parameters["TimeZone"] != "Asia/Kolkata"
    finally:
        server.run("ALTER ROLE other RESET timezone")


def test_read_only_pool(make_proxy):
    """L25: a read-only pool refuses writes with 25006"""
    with make_proxy(pool={"read_only": True}) as proxy, proxy.client() as client:
        assert client.query("CREATE TABLE never (n int)") == "E[25006] Z"
        assert client.query("SELECT 1") == "D[1] C[SELECT 1] Z"
