"""The proxy under attack: clients and servers that send nonsense, take nothing, vanish, or all of it at once (L22, L24)."""
import contextlib
import os
import random
import signal
import socket
import struct
import subprocess
import threading

import pytest
from conftest import make_certificate, wait_until
from wire import (SSL_REQUEST, SYNC, TERMINATE, Client, Closed, bind, copy_data, COPY_DONE, execute, message, parse, query,
                  startup)

GONE = (Closed, ConnectionError, TimeoutError, OSError)
SEED = 20261


def deaf_client(proxy, **parameters):
    """A client whose kernel takes little, so that what it does not read waits in the proxy."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.settimeout(30)
    raw.connect(("127.0.0.1", proxy.port))
    client = Client.__new__(Client)
    client.socket, client.buffer, client.parameters = raw, b"", {}
    client.key = client.process_id = client.certificate = None
    return client.login("app secret", user="app", database="app", **parameters)


def settled(proxy):
    """No login and no client is left, as the proxy counts them."""
    wait_until(lambda: proxy.metric("clients") == 0 and proxy.metric("clients_logging_in") == 0, what="the end of all clients")


def test_small_buffers(make_proxy):
    """a buffer limit below one read loses and delays nothing, in both directions"""
    with make_proxy(limits={"client_buffer_bytes": 16384}) as proxy, proxy.client() as client:
        client.query("SELECT 1")
        rows = client.send(query("SELECT repeat('x', 1000) FROM generate_series(1, 3000)")).read_until()
        assert sum(m.kind == "D" for m in rows) == 3000
        client.query("CREATE TABLE IF NOT EXISTS small_buffers (t text)")
        line = copy_data(b"y" * 999 + b"\n")
        client.send(query("COPY small_buffers FROM STDIN"), line * 3000, COPY_DONE)
        assert "C[COPY 3000] Z" in client.answers()
        client.query("DROP TABLE small_buffers")


def test_cancels_are_no_logins(make_proxy):
    """cancel requests, known or not, leave no place of a login taken"""
    with make_proxy(limits={"max_logins": 4, "max_logins_per_address": 4}) as proxy, proxy.client() as client:
        for number in range(12):
            with proxy.socket() as canceller:
                canceller.send(client.cancel_packet() if number % 2 else struct.pack("!iiII", 16, 80877102, 7, number))
                assert canceller.rest() == []
        with proxy.client() as late:
            assert late.query("SELECT 1") == "D[1] C[SELECT 1] Z"
        wait_until(lambda: proxy.metric("clients_logging_in") == 0)


def test_client_stalls(make_proxy, server):
    """L22: a client that takes nothing of its result gets 08006, its query is cancelled and its connection closed"""
    with make_proxy(pool={"client_stall_timeout_ms": 1000, "max_size": 1}) as proxy:
        client = deaf_client(proxy)
        client.send(query("SELECT repeat('s', 100000) FROM generate_series(1, 10000)"))
        wait_until(lambda: proxy.metric("session_errors_total") >= 1, what="the stalled client's error")
        wait_until(lambda: server.run("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND usename = 'app'") == "0",
                   what="the end of its query")
        with proxy.client() as other:
            assert other.query("SELECT 1") == "D[1] C[SELECT 1] Z"
        assert 'reason="client_stalled"} 1' in proxy.get("/metrics")[1]
        client.socket.close()


def test_results_nobody_takes(make_proxy):
    """a pipeline whose answers nobody takes is answered no further than the buffer's limit, and goes on when they are"""
    with make_proxy(limits={"client_buffer_bytes": 65536}) as proxy:
        client = deaf_client(proxy)
        count = 1000
        client.send(query("SELECT repeat('r', 60000)") * count)
        with proxy.client() as other:
            for _ in range(20):
                other.query("SELECT 1")
            peak = proxy.metric("memory_bytes")
        answers = client.read_until("Z", count)
        assert sum(m.kind == "D" for m in answers) == count
        assert peak < 8 << 20, peak
        client.socket.close()
        settled(proxy)
        wait_until(lambda: proxy.metric("memory_bytes") == 0, what="the return of all memory")


def test_memory_limit(make_proxy):
    """at the memory limit no client is read until others have taken theirs, and sessions in progress finish"""
    with make_proxy(limits={"max_memory_bytes": 16 << 20, "client_buffer_bytes": 2 << 20}, pool={"max_size": 20}) as proxy:
        quiet = proxy.client()
        greedy = [deaf_client(proxy) for _ in range(12)]
        for client in greedy:
            client.send(query("SELECT repeat('m', 100000) FROM generate_series(1, 100)"))
        wait_until(lambda: proxy.metric("memory_bytes") >= 16 << 20, what="the memory limit")
        quiet.send(query("SELECT 'late'"))
        assert quiet.is_silent()
        for client in greedy:
            assert sum(m.kind == "D" for m in client.read_until()) == 100
        assert quiet.answers() == "D[late] C[SELECT 1] Z"
        for client in greedy:
            assert client.query("SELECT 1") == "D[1] C[SELECT 1] Z"
            client.socket.close()
        assert proxy.metric("memory_bytes") < 16 << 20
        quiet.socket.close()


def nonsense(chance):
    """Bytes that are no protocol, or nearly are."""
    kind = chance.randrange(7)
    if kind == 0:
        return chance.randbytes(chance.randrange(1, 300))
    if kind == 1:
        return chance.choice(b"QPBDECSHXdcfFp").to_bytes(1, "big") + struct.pack("!I", chance.choice([0, 3, 4, 1 << 31, 0xffffffff, 1 << 30]))
    if kind == 2:
        return message(chance.choice("QPBDECSHdcfF"), chance.randbytes(chance.randrange(60)))
    if kind == 3:
        whole = parse("SELECT $1::int", types=(23,)) + bind(values=(1,)) + execute() + SYNC
        return whole[:chance.randrange(len(whole))]
    if kind == 4:
        return (SYNC * chance.randrange(1, 200)) + query("SELECT 1") + b"\0" * chance.randrange(9)
    if kind == 5:
        return parse("SELECT 1", name="n") + bind("other") + execute("none") + SYNC + message("F", b"\0" * 20)
    return query("BEGIN; SELECT 1") + query("COPY (SELECT generate_series(1, 50000)) TO STDOUT")[:chance.randrange(6, 50)]


def test_nonsense_in_sessions(make_proxy):
    """nonsense, truncated messages and giant lengths end at most their own session"""
    chance = random.Random(SEED)
    with make_proxy(pool={"max_size": 4}) as proxy:
        with proxy.client() as witness:
            for number in range(150):
                with contextlib.suppress(*GONE), proxy.client() as client:
                    client.send(nonsense(chance))
                    if chance.random() < 0.5:
                        client.reset()
                    elif chance.random() < 0.5:
                        client.socket.shutdown(socket.SHUT_WR)
                        client.rest()
                if number % 10 == 0:
                    assert witness.query("SELECT 1") == "D[1] C[SELECT 1] Z"
        settled(proxy)


def connect_and_vanish(proxy, chance):
    """One client that leaves somewhere between connect() and the middle of a session."""
    where = chance.randrange(9)
    with contextlib.suppress(*GONE):
        client = proxy.socket()
        with client:
            if where == 1:
                client.send(SSL_REQUEST)
            elif where == 2:
                client.send(SSL_REQUEST).read_bytes(1)
                client.send(b"\x16\x03\x01\x02\x00" + chance.randbytes(60))
            elif where == 3:
                client.send(startup(user="app", database="app")[:chance.randrange(1, 30)])
            elif where == 4:
                client.start(user="app", database="app").read()
            elif where == 5:
                client.refused("wrong", user="app", database="app")
            elif where == 6:
                client.start_tls().start(user="app", database="app").read()
            elif where == 7:
                client.login("app secret", user="app", database="app").send(query("SELECT pg_sleep(0.01)"))
            elif where == 8:
                client.start_tls().login("app secret", user="app", database="app").send(query("BEGIN"))
            if chance.random() < 0.5:
                client.reset()


def test_vanishing_clients(make_proxy):
    """clients that vanish at any point of login and session leave no descriptor, no login and no memory behind"""
    chance = random.Random(SEED)
    with make_proxy(pool={"max_size": 4}) as proxy:
        for _ in range(100):
            connect_and_vanish(proxy, chance)
        settled(proxy)
        before = proxy.descriptors()
        for _ in range(400):
            connect_and_vanish(proxy, chance)
        settled(proxy)
        wait_until(lambda: proxy.descriptors() <= before + 4, what="the descriptors' return")
        assert proxy.metric("memory_bytes") == 0
        with proxy.client() as client:
            assert client.query("SELECT 1") == "D[1] C[SELECT 1] Z"


def under_load(proxy, action, clients=8):
    """Runs `action` while clients query and reconnect; the texts of what they got wrong."""
    stop, wrong = threading.Event(), []

    def loop(number):
        while not stop.is_set():
            with contextlib.suppress(*GONE, AssertionError), proxy.client(tls=number % 2 == 0) as client:
                while not stop.is_set():
                    value = f"{number}"
                    found = client.send(query(f"SELECT '{value}'")).read_until()
                    rows = [m.values for m in found if m.kind == "D"]
                    if rows not in ([[value]], []):
                        wrong.append(rows)

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        action()
    finally:
        stop.set()
        for thread in threads:
            thread.join(40)
    assert not any(thread.is_alive() for thread in threads)
    return wrong


def test_dying_servers(make_proxy, server):
    """backends that are killed, and restarts of the server, under load: no answer reaches the wrong client, and all goes on"""
    with make_proxy(pool={"max_size": 3}) as proxy:
        def action():
            for _ in range(3):
                wait_until(lambda: server.backends() > 0)
                server.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'")
            for mode in ("fast", "immediate"):
                server.stop(mode)
                server.start()
            wait_until(lambda: server.backends() > 0)
            pid = server.run("SELECT pid FROM pg_stat_activity WHERE usename = 'app' LIMIT 1")
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(pid), signal.SIGKILL)
            wait_until(lambda: server.run("SELECT 1", may_fail=True) == "1")

        assert under_load(proxy, action) == []

        def serves():
            with contextlib.suppress(*GONE, AssertionError), proxy.client() as client:
                return client.query("SELECT 1") == "D[1] C[SELECT 1] Z"

        wait_until(serves, what="service after the restarts")


def test_reload_storm(make_proxy, home):
    """reloads with good and bad certificates, by the dozen and under load, break no session"""
    with make_proxy(pool={"max_size": 3}) as proxy, proxy.client(tls=True) as witness:
        good = proxy.configuration["client_tls"]["certificate_file"], proxy.configuration["client_tls"]["key_file"]
        other = make_certificate(home, "other")

        def action():
            for number in range(30):
                certificate, key = good if number % 3 == 0 else (str(other[0]), str(other[1]))
                proxy.configuration["client_tls"].update(certificate_file=certificate, key_file=key if number % 3 < 2 else good[1])
                proxy.reload()
                assert witness.query("SELECT 1") == "D[1] C[SELECT 1] Z"

        assert under_load(proxy, action) == []
        assert proxy.process.poll() is None


@pytest.mark.parametrize("signals", [1, 2])
def test_ends_under_load(make_proxy, signals):
    """SIGTERM under load ends the proxy cleanly, once or twice told"""
    with make_proxy(pool={"max_size": 3}) as proxy:
        def action():
            wait_until(lambda: proxy.metric("pool_transactions_total") > 50)
            for _ in range(signals):
                proxy.process.send_signal(signal.SIGTERM)
            proxy.process.wait(30)

        assert under_load(proxy, action) == []
        assert proxy.process.returncode == 0


def test_long_pipelines(make_proxy):
    """100,000 messages in one pipeline are answered one by one, also if they are read only at the end"""
    with make_proxy() as proxy, proxy.client() as client:
        count = 25000
        one = parse("SELECT 1") + bind() + execute() + SYNC
        sender = threading.Thread(target=client.send, args=(one * count,))
        sender.start()
        answers = client.read_until("Z", count)
        sender.join()
        assert sum(m.kind == "D" for m in answers) == count
        assert not any(m.kind == "E" for m in answers)
        client.send(TERMINATE)
