"""How clients leave, and what becomes of the server they had (cases C15, C16, C18, C20, E12, E15)."""
import socket
import subprocess
import time

from conftest import wait_until
from wire import SYNC, TERMINATE, Closed, bind, describe_portal, execute, message, parse, query


def none_in_transaction(server):
    return server.run("SELECT count(*) FROM pg_stat_activity WHERE usename = 'app' AND state <> 'idle'") == "0"


def test_terminate(proxy, server):
    """complete messages in front of Terminate are carried out"""
    server.run("DROP TABLE IF EXISTS goodbye; CREATE TABLE goodbye (n int); GRANT ALL ON goodbye TO app", database="app")
    with proxy.client() as client:
        client.send(query("INSERT INTO goodbye VALUES (1)"), parse("INSERT INTO goodbye VALUES (2)"), bind(), execute(), SYNC, TERMINATE)
        assert client.answers(2) == "C[INSERT 0 1] Z 1 2 C[INSERT 0 1] Z"
        assert client.rest() == []
    assert server.run("SELECT count(*) FROM goodbye", database="app") == "2"


def test_fin(either, server):
    """complete messages in front of a FIN are carried out as a direct server would, and answered"""
    with either.client() as client:
        client.send(query("SELECT 'last words'"))
        client.socket.shutdown(socket.SHUT_WR)
        assert client.answers() == "D[last words] C[SELECT 1] Z"
        assert client.rest() == []


def test_case_c15(proxy, server):
    """case C15: after half a batch and a reset the backend is idle or gone within a second"""
    for _ in range(5):
        client = proxy.client()
        client.send(parse("SELECT 1"), bind()[:7])
        time.sleep(0.05)
        client.reset()
        wait_until(lambda: none_in_transaction(server), limit_s=5)
    with proxy.client() as client:
        assert client.query("SELECT 'next'") == "D[next] C[SELECT 1] Z"


def test_reset_during_query(proxy, server):
    """a client that resets its connection during a query has it cancelled at once, not merely left alone"""
    for sql in ("SELECT pg_sleep(600)", "SELECT count(*) FROM generate_series(1, 100000000000)"):
        client = proxy.client()
        client.send(query(sql))
        wait_until(lambda: server.run("SELECT count(*) FROM pg_stat_activity WHERE usename = 'app' AND state = 'active'") == "1")
        client.reset()
        wait_until(lambda: server.run("SELECT count(*) FROM pg_stat_activity WHERE usename = 'app' AND state = 'active'") == "0", limit_s=10)


def test_case_c16(proxy, server):
    """case C16: six pipelined transactions of five clients, every reply delivered, no server left in one"""
    clients = [proxy.client() for _ in range(5)]
    for _ in range(5):
        for client in clients:
            client.send(*[query("BEGIN READ ONLY") + query("SELECT 16") + query("COMMIT") for _ in range(6)])
        for client in clients:
            assert client.answers(18) == " ".join(["C[BEGIN] Z[T] D[16] C[SELECT 1] Z[T] C[COMMIT] Z"] * 6)
    assert none_in_transaction(server)
    for client in clients:
        client.socket.close()


def test_case_c17(proxy):
    """case C17: unnamed statements of many clients never meet"""
    clients = [proxy.client() for _ in range(12)]
    for round_number in range(30):
        for n, client in enumerate(clients):
            if round_number % 2:
                client.send(parse(f"SELECT {n}"), bind(), execute(), SYNC)
            else:
                client.send(parse(f"SELECT {n}"), SYNC)
        for n, client in enumerate(clients):
            if round_number % 2:
                assert client.answers() == f"1 2 D[{n}] C[SELECT 1] Z"
            else:
                assert client.answers() == "1 Z"
        if not round_number % 2:
            for client in clients:
                client.send(bind(), execute(), SYNC)
            for n, client in enumerate(clients):
                assert client.answers() == f"2 D[{n}] C[SELECT 1] Z"
    for client in clients:
        client.socket.close()


def test_case_c18(either, server):
    """case C18: a backend that is terminated gives exactly one FATAL, then the end"""
    with either.client(application_name="c18") as client:
        client.send(parse("SELECT pg_sleep(30)"), bind(), describe_portal(), execute(), SYNC)
        wait_until(lambda: server.run("SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(30)' AND state = 'active'") == "1")
        server.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(30)' AND state = 'active' AND pid <> pg_backend_pid()")
        errors = [m for m in client.rest() if m.kind == "E"]
        assert [(e.fields["S"], e.fields["C"]) for e in errors] == [("FATAL", "57P01")]


def test_backend_killed(proxy, server):
    """a backend killed with SIGKILL ends its client with 08006 or the server's own words, and the pool recovers"""
    with proxy.client() as client:
        client.send(query("SELECT pg_sleep(30)"))
        pid = wait_until(lambda: server.run("SELECT pid FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(30)' AND state = 'active'"))
        subprocess.run(["kill", "-9", pid], check=True)
        errors = [m for m in client.rest() if m.kind == "E"]
        assert len(errors) == 1 and errors[0].fields["S"] == "FATAL"

    def works():
        try:
            with proxy.client() as client:
                return client.query("SELECT 1") == "D[1] C[SELECT 1] Z"
        except (AssertionError, Closed, OSError):
            return False

    wait_until(works)


def test_case_e12(proxy, server):
    """case E12: clients that leave inside of a transaction leave no lock and no transaction behind, 100 times"""
    for _ in range(100):
        client = proxy.client()
        client.query("BEGIN")
        client.query("SELECT pg_advisory_xact_lock(12)")
        client.reset()
    wait_until(lambda: none_in_transaction(server), limit_s=10)
    assert server.run("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == "0"
    assert server.backends() <= 2


def test_case_e15(make_proxy, server):
    """case E15: a client that idles in a failed transaction loses its server, 25P03"""
    with make_proxy(pool={"max_size": 1, "idle_transaction_timeout_ms": 500}) as proxy, proxy.client() as client:
        client.query("BEGIN")
        assert client.query("SELECT 1/0") == "E[22012] Z[E]"
        errors = [m for m in client.rest() if m.kind == "E"]
        assert [(e.fields["S"], e.fields["C"]) for e in errors] == [("FATAL", "25P03")]
        with proxy.client() as other:
            assert other.query("SELECT 'free'") == "D[free] C[SELECT 1] Z"


def test_unfinished_batch(make_proxy):
    """L21: a batch without its Sync is an unfinished transaction as well"""
    with make_proxy(pool={"max_size": 1, "idle_transaction_timeout_ms": 500}) as proxy, proxy.client() as client:
        client.send(parse("SELECT 1"), bind(), execute())
        errors = [m for m in client.rest() if m.kind == "E"]
        assert errors[-1].fields["C"] == "25P03"


def test_unknown_message(proxy):
    """a message type that does not exist ends the client with 08P01, nobody else notices"""
    with proxy.client() as client, proxy.client() as other:
        client.send(message("y", b"what"))
        errors = [m for m in client.rest() if m.kind == "E"]
        assert [(e.fields["S"], e.fields["C"]) for e in errors] == [("FATAL", "08P01")]
        assert other.query("SELECT 1") == "D[1] C[SELECT 1] Z"


def test_slow_reader(proxy):
    """a client that does not read holds its answer in bounded memory, and gets it all in the end"""
    with proxy.client() as client:
        before = proxy.resident_kib()
        client.send(query("SELECT repeat('x', 1000) FROM generate_series(1, 200000)"))
        time.sleep(2)
        assert proxy.resident_kib() - before < 64 << 10
        assert sum(m.kind == "D" for m in client.read_until()) == 200000
