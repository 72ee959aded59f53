"""The strict profile: what it refuses and how (L3, L5, L22 to L24, L27, L28)."""
import pytest

from wire import SYNC, Client, bind, describe_statement, execute, message, parse, query


@pytest.fixture
def strict(make_proxy):
    with make_proxy(pool={"profile": "strict", "max_size": 2}) as proxy:
        yield proxy


def refusal(client):
    """The one error a refused client gets before it is closed."""
    errors = [m for m in client.rest() if m.kind == "E"]
    assert len(errors) == 1
    return errors[0].fields["S"], errors[0].fields["C"]


def test_served(strict):
    """simple queries and batches with unnamed objects are served"""
    with strict.client() as client:
        assert client.query("SELECT 1") == "D[1] C[SELECT 1] Z"
        client.send(parse("SELECT $1::int"), bind("", "", (5,)), execute(), SYNC)
        assert client.answers() == "1 2 D[5] C[SELECT 1] Z"
        assert client.query("BEGIN") == "C[BEGIN] Z[T]"
        assert client.query("SET LOCAL work_mem = '5MB'") == "C[SET] Z[T]"
        assert client.query("SET TRANSACTION READ ONLY") == "C[SET] Z[T]"
        assert client.query("COMMIT") == "C[COMMIT] Z"


@pytest.mark.parametrize("sql", ["SET work_mem = '5MB'", "set/**/session work_mem to '5MB'", "SELECT 1; SET work_mem = '5MB'", "RESET ALL",
                                 "DISCARD ALL", "PREPARE s AS SELECT 1", "LISTEN q", "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
                                 "SET CONSTRAINTS ALL DEFERRED", "/* x */ reset work_mem"])
def test_guard(strict, sql):
    """L24: a statement that leaves something behind is refused and the client closed, simple and extended"""
    with strict.client() as client:
        assert refusal(client.send(query(sql))) == ("FATAL", "0A000")
    if ";" not in sql:
        with strict.client() as client:
            assert refusal(client.send(parse(sql), bind(), execute(), SYNC)) == ("FATAL", "0A000")


@pytest.mark.parametrize("sql", ["SELECT 'SET work_mem'", "SELECT $q$; SET x = 1$q$", "SELECT 1 -- ; SET x = 1", 'SELECT 1 AS "SET"',
                                 "SELECT E'\\'; SET x = 1'"])
def test_guard_is_not_fooled(strict, sql):
    """L24: words inside of quotes and comments are no statements"""
    with strict.client() as client:
        assert client.query(sql).endswith("C[SELECT 1] Z")


@pytest.mark.parametrize("messages, sqlstate", [
    (parse("SELECT 1", "named") + SYNC, "0A000"),
    (bind("named") + SYNC, "0A000"),
    (bind() + execute() + SYNC, "26000"),
    (describe_statement() + SYNC, "26000"),
    (message("F", b"\0\0\0\1\0\0\0\0\0\0") + SYNC, "0A000"),
    (parse("SELECT 1") + query("SELECT 2"), "08P01"),
], ids=["named Parse", "named Bind", "Bind without Parse", "Describe without Parse", "FunctionCall", "Query in a batch"])
def test_messages(strict, messages, sqlstate):
    """L23: named objects, FunctionCall, COPY and a Query inside of a batch are refused"""
    with strict.client() as client:
        assert refusal(client.send(messages)) == ("FATAL", sqlstate)


def test_copy(strict, server):
    """L23: COPY is refused, and the server's connection not reused"""
    for sql in ("COPY (SELECT 1) TO STDOUT", "COPY pg_class FROM STDIN"):
        with strict.client() as client:
            assert refusal(client.send(query(sql)))[1] == "0A000"
    with strict.client() as client:
        assert client.query("SELECT 1") == "D[1] C[SELECT 1] Z"


@pytest.mark.parametrize("name, value, sqlstate", [("options", "-c geqo=off", "0A000"), ("replication", "true", "0A000"),
                                                   ("geqo", "off", "0A000"), ("statement_timeout", "1s", "0A000"),
                                                   ("client_encoding", "LATIN1", "0A000")])
def test_startup(strict, name, value, sqlstate):
    """L3: other startup parameters are refused by name"""
    with strict.socket() as client:
        fields = client.refused("app secret", user="app", database="app", **{name: value})
        assert fields["C"] in (sqlstate, "22023") and (name in fields["M"] or value in fields["M"])


def test_startup_accepted(strict):
    """L3: the accepted ones take effect"""
    with strict.client(statement_timeout="1500", client_encoding="UTF8", application_name="me") as client:
        assert client.value("SHOW statement_timeout") == "1500ms"
        assert client.parameters["application_name"] == "me"


def test_startup_sets(strict):
    """L28: a third set of startup options in use is 0A000"""
    with strict.client(statement_timeout="1000") as first, strict.client(statement_timeout="2000") as second:
        first.query("BEGIN"), second.query("BEGIN")
        with Client(("127.0.0.1", strict.port)) as third:
            assert third.refused("app secret", user="app", database="app", statement_timeout="3000")["C"] == "0A000"


def test_wait(make_proxy):
    """a wait that ends without a server closes the client with 53300"""
    with make_proxy(pool={"profile": "strict", "max_size": 1, "wait_timeout_ms": 300}) as proxy:
        with proxy.client() as holder, proxy.client() as client:
            holder.query("BEGIN")
            assert refusal(client.send(query("SELECT 1"))) == ("FATAL", "53300")


def test_parameter_changed(strict, server):
    """L27: a connection whose reported settings changed is not reused"""
    with strict.client() as client:
        first = client.value("SELECT pg_backend_pid()")
        client.query("SELECT set_config('timezone', 'Asia/Tokyo', false)")
        assert client.value("SHOW timezone") != "Asia/Tokyo"
        assert client.value("SELECT count(*) FROM pg_stat_activity WHERE pid = " + first) == "0"
