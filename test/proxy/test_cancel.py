"""Cancels meet the query they were meant for, or nothing (cases C5, C6, C7, C21)."""
import struct
import threading
import time

from conftest import wait_until
from fake_server import FakeServer, row, tag, verifier
from wire import query


def send_cancel(proxy, client, tls=False):
    other = proxy.socket()
    if tls:
        other.start_tls()
    other.send(client.cancel_packet())
    try:
        other.socket.recv(1)
    except ConnectionError:
        pass
    other.socket.close()


def running(server, words):
    return server.run(f"SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '{words}%'") == "1"


def test_cancel(proxy, server):
    """a cancel ends the client's query with 57014, also when it comes inside TLS"""
    for tls in (False, True):
        with proxy.client() as client:
            client.send(query("SELECT pg_sleep(30)"))
            wait_until(lambda: running(server, "SELECT pg_sleep(30)"))
            send_cancel(proxy, client, tls)
            assert client.answers() == "E[57014] Z"
            assert client.query("SELECT 1") == "D[1] C[SELECT 1] Z"


def test_wrong_key(proxy, server):
    """a key that is wrong in its last bit, or somebody else's number, cancels nothing"""
    with proxy.client() as client, proxy.client() as other:
        client.send(query("SELECT pg_sleep(1)"))
        wait_until(lambda: running(server, "SELECT pg_sleep(1)"))
        for process_id, key in ((client.process_id, client.key[:3] + bytes([client.key[3] ^ 1])), (other.process_id, client.key)):
            with proxy.socket() as cancel:
                cancel.send(struct.pack("!iiI", 16, 80877102, process_id) + key)
        assert client.answers() == "D[] C[SELECT 1] Z"


def test_guessing_is_limited(make_proxy, server):
    """keys that nobody has are only looked at so often in a second"""
    with make_proxy(cancel={"max_failures_per_second": 5}) as proxy, proxy.client() as client:
        client.send(query("SELECT pg_sleep(2)"))
        wait_until(lambda: running(server, "SELECT pg_sleep(2)"))
        for n in range(40):
            with proxy.socket() as cancel:
                cancel.send(struct.pack("!iiII", 16, 80877102, 1, n))
        send_cancel(proxy, client)
        assert client.answers() == "D[] C[SELECT 1] Z"


def test_queued(make_proxy, server):
    """a cancel ends a client's wait for a server connection, and its session goes on"""
    with make_proxy(pool={"max_size": 1}) as proxy, proxy.client() as holder, proxy.client() as queued:
        holder.query("BEGIN")
        queued.send(query("SELECT 'queued'"))
        time.sleep(0.2)
        send_cancel(proxy, queued)
        assert queued.answers() == "E[57014] Z"
        holder.query("COMMIT")
        assert queued.query("SELECT 'served'") == "D[served] C[SELECT 1] Z"


def test_case_c6(make_proxy, server):
    """case C6: a cancel for A never strikes B on the shared server, 100 rounds"""
    with make_proxy(pool={"max_size": 1}) as proxy, proxy.client() as a, proxy.client() as b:
        for n in range(100):
            a.send(query("SELECT pg_sleep(0.002)"))
            cancel = threading.Thread(target=send_cancel, args=(proxy, a))
            cancel.start()
            b.send(query("SELECT pg_sleep(0.001), 'b'"))
            assert b.answers() == "D[|b] C[SELECT 1] Z", f"round {n}"
            assert a.answers() in ("D[] C[SELECT 1] Z", "E[57014] Z", "D[] E[57014] Z")
            cancel.join()


def test_case_c7(proxy):
    """case C7: after a cancel at the moment of completion each answer belongs to its query, 60 rounds"""
    with proxy.client() as client:
        for n in range(60):
            client.send(query(f"SELECT pg_sleep(0.001), {n}"))
            cancel = threading.Thread(target=send_cancel, args=(proxy, client))
            cancel.start()
            assert client.answers() in (f"D[|{n}] C[SELECT 1] Z", "E[57014] Z", f"D[|{n}] E[57014] Z")
            first = client.query(f"SELECT 'one {n}'")
            second = client.query(f"SELECT 'two {n}'")
            assert first in (f"D[one {n}] C[SELECT 1] Z", "E[57014] Z") and second == f"D[two {n}] C[SELECT 1] Z"
            cancel.join()


def test_case_c5(make_proxy):
    """case C5: a cancel whose way to the server is slow is dropped once its assignment is over, and the server is not reused before"""
    def script(connection):
        connection.log_in()
        connection.answer_queries(lambda sql: time.sleep(0.5 if "slow" in sql else 0) or row(sql) + tag("SELECT 1"))

    with FakeServer(script) as fake:
        proxy = make_proxy(server_port=fake.port, pool={"max_size": 1})
        (proxy.folder / "verifiers").write_text(f'"app" "{verifier("app secret")}"\n')
        proxy.configuration["auth"] = {"source": "file", "file": str(proxy.folder / "verifiers")}
        proxy.write()
        with proxy, proxy.client() as a, proxy.client() as b:
            a.send(query("slow"))
            time.sleep(0.1)
            send_cancel(proxy, a)
            assert a.answers() == "D[slow] C[SELECT 1] Z"
            assert b.query("quick") == "D[quick] C[SELECT 1] Z"
            assert len(fake.cancels) == 1
