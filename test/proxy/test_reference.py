"""What PostgreSQL answers, byte for byte in the order of its messages, directly and through the proxy. The reference answers
were measured on PostgreSQL 15; a test that passes directly and fails through the proxy is the proxy's fault."""
import struct

from wire import (COPY_DONE, FLUSH, SYNC, bind, close_portal, close_statement, copy_data, copy_fail, describe_portal,
                  describe_statement, execute, message, parse, query)


def pbes(sql, name="", values=()):
    return parse(sql, name) + bind(name, "", values) + execute() + SYNC


def test_simple(either):
    """a simple query, an empty one, several statements in one string"""
    with either.client() as client:
        assert client.query("SELECT 1") == "D[1] C[SELECT 1] Z"
        assert client.query("") == "I Z"
        assert client.query("SELECT 1; SELECT 2") == "D[1] C[SELECT 1] D[2] C[SELECT 1] Z"
        assert client.query("SELECT 1; SELECT 1/0; SELECT 2") == "D[1] C[SELECT 1] E[22012] Z"


def test_extended(either):
    """unnamed statements with and without values, described and not"""
    with either.client() as client:
        assert client.send(pbes("SELECT $1::int + 1", values=(41,))).answers() == "1 2 D[42] C[SELECT 1] Z"
        client.send(parse("SELECT $1::text"), describe_statement(), SYNC)
        assert client.answers(leave_out="") == "1 t T Z"
        client.send(bind("", "", ("x",)), describe_portal(), execute(), SYNC)
        assert client.answers(leave_out="") == "2 T D[x] C[SELECT 1] Z"


def test_transaction(either):
    """transaction states: T, E, and back to idle"""
    with either.client() as client:
        assert client.query("BEGIN") == "C[BEGIN] Z[T]"
        assert client.query("SELECT 1/0") == "E[22012] Z[E]"
        assert client.query("SELECT 1") == "E[25P02] Z[E]"
        assert client.query("COMMIT") == "C[ROLLBACK] Z"


def test_case_c2(either):
    """case C2: what was sent behind a Sync is answered by a server that has the statement"""
    with either.client() as client, either.client() as rival:
        client.send(bind("missing"), execute(), SYNC, parse("SELECT 2"), describe_statement(), FLUSH)
        assert [str(client.read()) for _ in range(5)] == ["E[26000]", "Z", "1", "t", "T"]
        assert rival.query("SELECT 'rival'") == "D[rival] C[SELECT 1] Z"
        client.send(bind(), execute(), SYNC)
        assert client.answers() == "2 D[2] C[SELECT 1] Z"


def test_case_c3(either):
    """case C3: extended COPY FROM STDIN with an early Sync gives one Z"""
    with either.client() as client:
        client.query("DROP TABLE IF EXISTS c3")
        client.query("CREATE TABLE c3 (n int)")
        client.send(parse("COPY c3 FROM STDIN"), bind(), execute(), SYNC, copy_data(b"1\n"), COPY_DONE, SYNC)
        assert client.answers() == "1 2 G C[COPY 1] Z"
        assert client.query("SELECT count(*) FROM c3") == "D[1] C[SELECT 1] Z"
        client.query("DROP TABLE c3")


def test_copy(either):
    """COPY in both directions, simple and extended, with a failure from either side"""
    with either.client() as client:
        client.query("DROP TABLE IF EXISTS both_ways")
        client.query("CREATE TABLE both_ways (n int)")
        client.send(query("COPY both_ways FROM STDIN"))
        assert str(client.read()) == "G"
        client.send(copy_data(b"1\n2\n"), copy_data(b"3\n"), COPY_DONE)
        assert client.answers() == "C[COPY 3] Z"
        client.send(query("COPY both_ways FROM STDIN"))
        assert str(client.read()) == "G"
        client.send(copy_fail("changed my mind"))
        assert client.answers() == "E[57014] Z"
        client.send(query("COPY both_ways FROM STDIN"), copy_data(b"no number\n"), COPY_DONE)
        assert client.answers() == "G E[22P02] Z"
        client.send(query("COPY both_ways TO STDOUT"))
        assert client.answers(leave_out="dT") == "H c C[COPY 3] Z"
        client.send(parse("COPY both_ways TO STDOUT"), bind(), execute(), SYNC)
        assert client.answers(leave_out="d") == "1 2 H c C[COPY 3] Z"
        client.query("DROP TABLE both_ways")


def test_case_c19(either):
    """case C19: an unnamed BEGIN and a named INSERT in one batch keep their tags and descriptions"""
    with either.client() as client:
        client.query("DROP TABLE IF EXISTS c19")
        client.query("CREATE TABLE c19 (n int)")
        for _ in range(2):
            client.send(parse("BEGIN"), bind(), execute())
            client.send(parse("INSERT INTO c19 VALUES (1) RETURNING n", "S_1"), bind("S_1"), describe_portal(), execute(), SYNC)
            assert client.answers(leave_out="") == "1 2 C[BEGIN] 1 2 T D[1] C[INSERT 0 1] Z[T]"
            client.send(close_statement("S_1"), SYNC)
            assert client.answers() == "3 Z[T]"
            assert client.query("COMMIT") == "C[COMMIT] Z"
        client.query("DROP TABLE c19")


def test_case_c22(either):
    """case C22: a pipeline with one Sync is one transaction"""
    with either.client() as client:
        client.query("DROP TABLE IF EXISTS c22")
        client.query("CREATE TABLE c22 (n int)")
        for sql in ("INSERT INTO c22 VALUES (1)", "INSERT INTO c22 VALUES (2)", "SELECT 1/0", "INSERT INTO c22 VALUES (3)"):
            client.send(parse(sql), bind(), execute())
        assert client.send(SYNC).answers() == "1 2 C[INSERT 0 1] 1 2 C[INSERT 0 1] 1 E[22012] Z"
        assert client.query("SELECT count(*) FROM c22") == "D[0] C[SELECT 1] Z"
        client.query("DROP TABLE c22")


def test_case_c11(either):
    """case C11: ROLLBACK undoes SET, the client is told at both ends"""
    with either.client(TimeZone="Europe/Berlin") as client:
        assert client.query("BEGIN") == "C[BEGIN] Z[T]"
        assert client.send(query("SET timezone = 'UTC'")).answers(leave_out="") == "C[SET] S[TimeZone=UTC] Z[T]"
        assert client.send(query("ROLLBACK")).answers(leave_out="") == "C[ROLLBACK] S[TimeZone=Europe/Berlin] Z"
        assert client.value("SHOW timezone") == "Europe/Berlin"


def test_case_g13(either):
    """case G13: six batches written at once, and S S S, one Z each"""
    with either.client() as client:
        client.send(*[parse(f"SELECT {n}") + bind() + describe_portal() + execute() + SYNC for n in range(6)])
        assert client.answers(6) == " ".join(f"1 2 D[{n}] C[SELECT 1] Z" for n in range(6))
        assert client.send(SYNC, SYNC, SYNC).answers(3) == "Z Z Z"


def test_case_g9_close(either):
    """case G9: Close of an unknown statement or portal succeeds"""
    with either.client() as client:
        assert client.send(close_statement("never"), close_portal("never"), SYNC).answers() == "3 3 Z"


def test_duplicate(either):
    """a second Parse of one name is 42P05, the first stays"""
    with either.client() as client:
        assert client.send(parse("SELECT 1", "twice"), SYNC).answers() == "1 Z"
        assert client.send(parse("SELECT 2", "twice"), SYNC).answers() == "E[42P05] Z"
        assert client.send(bind("twice"), execute(), SYNC).answers() == "2 D[1] C[SELECT 1] Z"


def test_flush_after_error(either):
    """a Parse error with Flush gives E at once, its Z only with Sync"""
    with either.client() as client:
        client.send(parse("SELEC"), FLUSH)
        assert str(client.read()) == "E[42601]"
        assert client.is_silent()
        client.send(bind(), execute(), FLUSH, SYNC)
        assert client.answers() == "Z"


def test_portal_rows(either):
    """a portal fetched in pieces is suspended between them"""
    with either.client() as client:
        client.send(query("BEGIN"), parse("SELECT generate_series(1, 3)"), bind("", "p"), execute("p", 2), execute("p", 2), SYNC)
        assert client.answers(2) == "C[BEGIN] Z[T] 1 2 D[1] D[2] s D[3] C[SELECT 1] Z[T]"
        assert client.query("COMMIT") == "C[COMMIT] Z"


def test_function_call(either):
    """the fastpath function call"""
    with either.client() as client:
        oid = int(client.value("SELECT 'int4abs(int4)'::regprocedure::oid"))
        client.send(message("F", struct.pack("!Ihhi", oid, 0, 1, 2) + b"-7" + struct.pack("!h", 0)))
        assert client.answers(leave_out="") == "V Z"


def test_case_g7(either):
    """case G7: DISCARD ALL and the next command in one write give two Z in order"""
    with either.client() as client:
        client.send(query("DISCARD ALL"), pbes("SELECT 7"))
        assert client.answers(2) == "C[DISCARD ALL] Z 1 2 D[7] C[SELECT 1] Z"


def test_case_g16(either):
    """case G16: the reset string of asyncpg is answered as a plain multi-statement"""
    with either.client() as client:
        assert client.query("SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL") == (
            "D[] C[SELECT 1] C[CLOSE CURSOR ALL] C[UNLISTEN] C[RESET] Z")


def test_split_bytes(either):
    """messages that arrive byte by byte are answered the same"""
    with either.client() as client:
        client.send_in_pieces(pbes("SELECT $1::text", values=("slow",)) + query("SELECT 'and simple'"))
        assert client.answers(2) == "1 2 D[slow] C[SELECT 1] Z D[and simple] C[SELECT 1] Z"


def test_large(either):
    """case C23: a value of 64 MB goes through in both directions"""
    with either.client() as client:
        size = 64 << 20
        client.send(parse("SELECT length($1::text)"), bind("", "", ("x" * size,)), execute(), SYNC)
        assert client.answers() == f"1 2 D[{size}] C[SELECT 1] Z"
        client.send(query(f"SELECT repeat('y', {size})"))
        rows = [m for m in client.read_until() if m.kind == "D"]
        assert len(rows[0].payload) == size + 6


def test_long_name(either):
    """case C23: a statement's name of 20,000 bytes"""
    with either.client() as client:
        name = "n" * 20000
        assert client.send(parse("SELECT 5", name), bind(name), execute(), SYNC).answers() == "1 2 D[5] C[SELECT 1] Z"


def test_session_state(either):
    """named statements and settings outlive the transaction that made them"""
    with either.client() as client, either.client() as rival:
        assert client.send(parse("SELECT $1::int * 2", "twice_it"), SYNC).answers() == "1 Z"
        assert client.query("SET work_mem = '5MB'") == "C[SET] Z"
        for n in range(5):
            assert rival.query("SELECT pg_sleep(0)") == "D[] C[SELECT 1] Z"
            assert client.send(bind("twice_it", "", (n,)), execute(), SYNC).answers() == f"2 D[{2 * n}] C[SELECT 1] Z"
        assert client.value("SHOW work_mem") == "5MB"
        assert rival.value("SHOW work_mem") == "4MB"
