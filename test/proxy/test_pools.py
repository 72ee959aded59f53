"""Who waits, who is served, and what is opened (cases A13, B3, B6, B7, B9, B13, B14, E11, E14), mostly against a scripted server."""
import base64
import struct
import threading
import time

import pytest

from conftest import wait_until
from fake_server import FakeServer, error, row, tag, verifier
from wire import Client, message, query, text


def proxy_for(make_proxy, fake, **sections):
    """A proxy in front of a scripted server, with verifiers from a file."""
    proxy = make_proxy(server_port=fake.port, **sections)
    (proxy.folder / "verifiers").write_text("".join(f'"{user}" "{verifier(user + " secret")}"\n' for user in ("app", "other")))
    proxy.configuration["auth"] = {"source": "file", "file": str(proxy.folder / "verifiers")}
    proxy.write()
    return proxy


def serve(connection):
    connection.log_in()
    connection.answer_queries()


def in_threads(count, work):
    """Runs work(n) in threads; what they returned, in order."""
    found = [None] * count

    def run(n):
        try:
            found[n] = work(n)
        except Exception as fault:
            found[n] = fault

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def test_scripted(make_proxy):
    """the scripted server is served like a real one"""
    with FakeServer(serve) as fake, proxy_for(make_proxy, fake) as proxy, proxy.client() as client:
        assert client.query("hello") == "D[hello] C[SELECT 1] Z"


def test_fifo(make_proxy, server):
    """L31: who waits longest is served first"""
    with make_proxy(pool={"max_size": 1}) as proxy, proxy.client() as holder:
        holder.query("BEGIN")
        waiting = [proxy.client() for _ in range(6)]
        for n, client in enumerate(waiting):
            client.send(query(f"SELECT {n}, clock_timestamp()::text"))
            time.sleep(0.05)
        holder.query("COMMIT")
        times = [client.read_until()[1].values[1] for client in waiting]
        assert times == sorted(times)
        for client in waiting:
            client.socket.close()


def test_max_waiters(make_proxy):
    """a full queue refuses in place with 53000, and the client stays"""
    with make_proxy(pool={"max_size": 1, "max_waiters": 1}) as proxy, proxy.client() as holder:
        holder.query("BEGIN")
        with proxy.client() as first, proxy.client() as second:
            first.send(query("SELECT 'first'"))
            time.sleep(0.2)
            assert second.query("SELECT 'second'") == "E[53000] Z"
            holder.query("COMMIT")
            assert first.answers() == "D[first] C[SELECT 1] Z"
            assert second.query("SELECT 'again'") == "D[again] C[SELECT 1] Z"


def test_wait_timeout(make_proxy):
    """a wait that takes too long ends with an error in place"""
    with make_proxy(pool={"max_size": 1, "wait_timeout_ms": 300}) as proxy, proxy.client() as holder, proxy.client() as client:
        holder.query("BEGIN")
        answer = client.query("SELECT 1")
        assert answer in ("E[53300] Z", "E[53000] Z")
        holder.query("COMMIT")
        assert client.query("SELECT 1") == "D[1] C[SELECT 1] Z"


def test_case_b3(make_proxy, server):
    """case B3: one role fills its own cap, not the proxy's"""
    with make_proxy(limits={"max_clients_per_role": 5}) as proxy:
        mine = [proxy.client() for _ in range(5)]
        with proxy.socket() as client:
            assert client.refused("app secret", user="app", database="app")["C"] == "53300"
        with proxy.client(user="other", database="postgres") as other:
            assert other.query("SELECT 1") == "D[1] C[SELECT 1] Z"
        mine.pop().socket.close()

        def again():
            try:
                return proxy.client()
            except AssertionError:
                return None

        wait_until(again).socket.close()
        for client in mine:
            client.socket.close()


def test_case_a16(make_proxy):
    """case A16: who is refused at the door learns no numbers"""
    with make_proxy(limits={"max_clients": 3}) as proxy:
        clients = [proxy.client() for _ in range(3)]
        with proxy.socket() as client:
            said = client.rest()
            assert [m.kind for m in said] == ["E"] and said[0].fields["C"] == "53300"
            assert not any(ch.isdigit() for ch in said[0].fields["M"] + said[0].fields.get("H", ""))
        for client in clients:
            client.socket.close()


def test_case_b6(make_proxy):
    """case B6: a released connection serves the queue while a slow login is under way"""
    logins = threading.Semaphore(1)

    def script(connection):
        connection.read_startup()
        if not logins.acquire(blocking=False):
            time.sleep(4)
        connection.scram("app secret")
        connection.welcome()
        connection.answer_queries(lambda sql: time.sleep(0.1 if "busy" in sql else 0) or row(sql) + tag("SELECT 1"))

    with FakeServer(script) as fake, proxy_for(make_proxy, fake, pool={"max_size": 5}) as proxy:
        busy = proxy.client()
        clients = [proxy.client() for _ in range(10)]
        began = time.monotonic()
        busy.send(query("busy"))
        for client in clients:
            client.send(query("queued"))
        for client in clients:
            assert client.answers() == "D[queued] C[SELECT 1] Z"
        assert time.monotonic() - began < 3
        for client in clients + [busy]:
            client.socket.close()


@pytest.mark.parametrize("sqlstate", ["53300", "57P03"])
def test_case_b7(make_proxy, sqlstate):
    """cases B7, A13, E11: a server that is full or starting is asked again, and clients do not see it"""
    until = time.monotonic() + 1.5

    def script(connection):
        connection.read_startup()
        if time.monotonic() < until:
            connection.send(error(sqlstate, "not now", "FATAL"))
            return
        connection.scram("app secret")
        connection.welcome()
        connection.answer_queries()

    with FakeServer(script) as fake, proxy_for(make_proxy, fake) as proxy:
        found = in_threads(5, lambda n: proxy.client().query("served"))
        assert found == ["D[served] C[SELECT 1] Z"] * 5
        assert fake.connections <= 30


def test_case_b9(make_proxy):
    """case B9: after a success the server goes away; clients fail early with the last error"""
    with FakeServer(serve) as fake:
        proxy = proxy_for(make_proxy, fake, pool={"wait_timeout_ms": 30000})
        proxy.start()
        with proxy.client() as client:
            assert client.query("one") == "D[one] C[SELECT 1] Z"
            clients = [proxy.client() for _ in range(5)]
    began = time.monotonic()
    found = [client.query("two") for client in clients]
    assert all(answer.startswith("E[08") for answer in found), found
    assert time.monotonic() - began < 10
    proxy.stop()


def test_case_e14(make_proxy):
    """case E14: what the server said is passed on, recovery is quick, other roles do not notice"""
    allowed = threading.Event()

    def script(connection):
        connection.read_startup()
        user = connection.startup["user"]
        if user == "app" and not allowed.is_set():
            connection.send(error("28000", 'role "app" is not permitted to log in', "FATAL"))
            return
        connection.scram(user + " secret")
        connection.welcome()
        connection.answer_queries()

    with FakeServer(script) as fake, proxy_for(make_proxy, fake) as proxy:
        with proxy.socket() as client:
            fields = client.refused("app secret", user="app", database="app")
            assert (fields["C"], fields["M"]) == ("28000", 'role "app" is not permitted to log in')
        with proxy.client(user="other") as client:
            assert client.query("other") == "D[other] C[SELECT 1] Z"
        allowed.set()

        def works():
            try:
                with proxy.client() as client:
                    return client.query("now") == "D[now] C[SELECT 1] Z"
            except AssertionError:
                return False

        wait_until(works, limit_s=5)


def test_case_e10(make_proxy):
    """case E10: the server's version changes between connects; older connections retire, clients go on"""
    version = ["15.1"]

    def script(connection):
        connection.log_in(server_version=version[0])
        connection.answer_queries()

    with FakeServer(script) as fake, proxy_for(make_proxy, fake) as proxy:
        with proxy.client() as first:
            assert first.parameters["server_version"] == "15.1"
            version[0] = "15.2"
            for peer in list(fake.open):
                peer.shutdown(2)
            assert first.query("go on") == "D[go on] C[SELECT 1] Z"
            with proxy.client() as second:
                assert second.parameters["server_version"] == "15.2"


def test_case_b14(make_proxy, server):
    """case B14: a burst of 100 clients with cancels between them never has more backends than max_size"""
    most = [0]
    done = threading.Event()

    def watch():
        while not done.is_set():
            most[0] = max(most[0], server.backends())
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()

    def work(n):
        with proxy.client() as client:
            for _ in range(5):
                client.query("SELECT pg_sleep(0.005)")
                if n % 4 == 0:
                    with proxy.socket() as cancel:
                        cancel.send(client.cancel_packet())
            return True

    with make_proxy(pool={"max_size": 5}, limits={"max_logins_per_address": 200, "max_logins": 200}) as proxy:
        assert in_threads(100, work) == [True] * 100
    done.set()
    watcher.join()
    assert 1 <= most[0] <= 5


def test_transparent_restart(make_proxy):
    """idle connections that the server closed are replaced without a client noticing"""
    with FakeServer(serve) as fake, proxy_for(make_proxy, fake) as proxy, proxy.client() as client:
        for n in range(5):
            assert client.query(f"round {n}") == f"D[round {n}] C[SELECT 1] Z"
            for peer in list(fake.open):
                peer.shutdown(2)
            time.sleep(0.05)


def test_hostile_servers(make_proxy):
    """cases D4, D5, D18: a server that misbehaves at the login is not used, and the client hears of it at once"""
    def over_long_nonce(connection):
        connection.read_startup()
        connection.send(message("R", struct.pack("!i", 10) + text("SCRAM-SHA-256") + b"\0"))
        payload = connection.read().payload
        nonce = payload.split(b"r=")[1].decode() + "x" * 65536
        connection.send(message("R", struct.pack("!i", 11) + f"r={nonce},s={base64.b64encode(b'salt').decode()},i=4096".encode()))
        connection.read()

    def many_iterations(connection):
        connection.read_startup()
        connection.send(message("R", struct.pack("!i", 10) + text("SCRAM-SHA-256") + b"\0"))
        payload = connection.read().payload
        nonce = payload.split(b"r=")[1].decode() + "abcdefgh"
        connection.send(message("R", struct.pack("!i", 11) + f"r={nonce},s={base64.b64encode(b'salt').decode()},i=2147483647".encode()))
        connection.read()

    def cleartext(connection):
        connection.read_startup()
        connection.send(message("R", struct.pack("!i", 3)))
        if connection.read().kind == "p":
            raise AssertionError("a password was sent in the clear")

    def nothing(connection):
        connection.read_startup()
        connection.welcome()
        connection.answer_queries()

    def error_without_fields(connection):
        connection.read_startup()
        connection.send(message("E", b"\0"))

    def error_without_end(connection):
        connection.read_startup()
        connection.send(message("E", b"Mno end"))

    for script in (over_long_nonce, many_iterations, cleartext, nothing, error_without_fields, error_without_end):
        with FakeServer(script) as fake, proxy_for(make_proxy, fake, pool={"wait_timeout_ms": 5000}) as proxy, proxy.socket() as client:
            began = time.monotonic()
            fields = client.refused("app secret", user="app", database="app")
            assert fields["S"] == "FATAL" and fields["C"] in ("08006", "08P01", "28000"), (script.__name__, fields)
            assert time.monotonic() - began < 15


def test_hostile_answers(make_proxy):
    """case D5: an ErrorResponse without SQLSTATE during a query ends that connection and its client, nobody else"""
    def script(connection):
        connection.log_in()
        while True:
            found = connection.read()
            if found.kind == "Q" and b"bad" in found.payload:
                connection.send(message("E", b"Monly words\0\0"))
            elif found.kind == "Q":
                connection.send(row("fine"), tag("SELECT 1"), message("Z", b"I"))
            elif found.kind == "X":
                return

    with FakeServer(script) as fake, proxy_for(make_proxy, fake) as proxy, proxy.client() as other:
        with proxy.client() as client:
            errors = [m for m in client.send(query("bad")).rest() if m.kind == "E"]
            assert len(errors) == 1 and errors[0].fields["C"] in ("08P01", "08006")
        assert other.query("good") == "D[fine] C[SELECT 1] Z"


def test_case_a4(make_proxy):
    """case A4: reconnecting at once while the server refuses forks no backend a time"""
    def script(connection):
        connection.read_startup()
        connection.send(error("53300", "sorry, too many clients already", "FATAL"))

    with FakeServer(script) as fake, proxy_for(make_proxy, fake, pool={"wait_timeout_ms": 500, "max_size": 5}) as proxy:
        end = time.monotonic() + 3

        def loop(_):
            refused = 0
            while time.monotonic() < end:
                with Client(("127.0.0.1", proxy.port)) as client:
                    assert client.refused("app secret", user="app", database="app")["C"] == "53300"
                refused += 1
            return refused

        found = in_threads(10, loop)
        assert all(isinstance(n, int) and n > 0 for n in found), found
        assert fake.connections <= 60
