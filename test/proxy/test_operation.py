"""The proxy in operation: drain, reload, admin HTTP, logs, many clients (E4, D16, L37 to L41, P8)."""
import json
import signal
import socket
import subprocess
import threading
import time

import conftest
from conftest import PASSWORDS, make_certificate, wait_until
from wire import Client, Closed, query


def fatal(client):
    errors = [m for m in client.rest() if m.kind == "E"]
    assert len(errors) == 1
    return errors[0].fields["S"], errors[0].fields["C"]


def test_case_e4(make_proxy):
    """case E4: a drain ends idle and busy clients at a transaction's boundary, and lets a transaction finish"""
    with make_proxy(drain={"drain_wait_ms": 700, "shutdown_timeout_ms": 20000}) as proxy:
        idle, busy, slow = proxy.client(), proxy.client(), proxy.client()
        assert proxy.get("/readyz")[0] == 200
        slow.query("BEGIN")
        ended = []

        def loop():
            try:
                while True:
                    assert busy.query("SELECT 1") == "D[1] C[SELECT 1] Z"
            except (Closed, ConnectionError, AssertionError) as end:
                ended.append(end)

        worker = threading.Thread(target=loop)
        worker.start()
        proxy.process.send_signal(signal.SIGTERM)
        wait_until(lambda: proxy.get("/readyz")[0] == 503, limit_s=5)
        assert proxy.get("/healthz")[0] == 200
        with proxy.socket() as late:
            assert late.refused("app secret", user="app", database="app")["C"] == "57P03"
        assert fatal(idle) == ("FATAL", "57P01")
        worker.join(10)
        assert ended and not worker.is_alive()
        assert slow.query("SELECT 'still'") == "D[still] C[SELECT 1] Z[T]"
        assert proxy.process.poll() is None
        slow.send(query("COMMIT"))
        assert slow.answers() == "C[COMMIT] Z"
        assert fatal(slow) == ("FATAL", "57P01")
        assert proxy.process.wait(10) == 0


def test_shutdown_timeout(make_proxy):
    """L37: whoever is left at shutdown_timeout is cut off, and nothing stays open on the server"""
    with make_proxy(drain={"drain_wait_ms": 0, "shutdown_timeout_ms": 1000}) as proxy:
        client = proxy.client()
        client.query("BEGIN")
        proxy.process.send_signal(signal.SIGTERM)
        assert proxy.process.wait(10) == 0
        client.socket.close()


def test_second_signal(make_proxy):
    """a second SIGTERM ends the proxy at once"""
    with make_proxy(drain={"drain_wait_ms": 60000, "shutdown_timeout_ms": 70000}) as proxy:
        client = proxy.client()
        proxy.process.send_signal(signal.SIGTERM)
        wait_until(lambda: proxy.get("/readyz")[0] == 503, limit_s=5)
        proxy.process.send_signal(signal.SIGTERM)
        assert proxy.process.wait(10) == 0
        client.socket.close()


def served_certificate(proxy):
    with proxy.client(tls=True) as client:
        return client.certificate


def test_case_d16(make_proxy, home):
    """case D16: a renewed certificate is served after SIGHUP, a bad pair keeps the old one, live sessions stay"""
    old = make_certificate(home, "d16")
    proxy = make_proxy()
    proxy.configuration["client_tls"].update(certificate_file=str(old[0]), key_file=str(old[1]))
    proxy.write()
    with proxy, proxy.client(tls=True) as live:
        first = served_certificate(proxy)
        make_certificate(home, "d16")
        proxy.reload()
        wait_until(lambda: served_certificate(proxy) != first)
        second = served_certificate(proxy)
        other = make_certificate(home, "d16_other")
        old[1].write_bytes(other[1].read_bytes())
        proxy.reload()
        wait_until(lambda: "reload failed" in proxy.log.read_text())
        assert served_certificate(proxy) == second
        assert live.query("SELECT 'alive'") == "D[alive] C[SELECT 1] Z"


def test_reload_limits(make_proxy, server):
    """a lowered max_size acts on live connections, a wrong file changes nothing"""
    with make_proxy(pool={"max_size": 4}) as proxy:
        clients = [proxy.client() for _ in range(4)]
        for client in clients:
            client.query("BEGIN")
        for client in clients:
            client.query("COMMIT")
        assert server.backends() == 4
        proxy.configuration["pool"]["max_size"] = 2
        proxy.reload()
        wait_until(lambda: server.backends() <= 2)
        proxy.configuration["pool"]["max_size"] = "many"
        proxy.reload()
        wait_until(lambda: "reload failed" in proxy.log.read_text())
        for client in clients:
            assert client.query("SELECT 1") == "D[1] C[SELECT 1] Z"
            client.socket.close()


def test_reload_unreadable(make_proxy):
    """a file that cannot be read to its end changes nothing at a reload, and nothing is said of settings it did not come to"""
    with make_proxy() as proxy:
        proxy.file.write_text(proxy.file.read_text().replace("[auth]", "[auth"))
        proxy.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reload failed" in proxy.log.read_text())
        assert "only with a restart" not in proxy.log.read_text()
        with proxy.client() as client:
            assert client.query("SELECT 1") == "D[1] C[SELECT 1] Z"


def test_admin(proxy):
    """L39, L40: metrics, health, readiness and pools over HTTP, with the documented names"""
    with proxy.client() as client:
        for _ in range(7):
            client.query("SELECT 1")
        client.query("BEGIN")
        wait_until(lambda: proxy.metric("pool_transactions_total") >= 7, limit_s=5)
        status, text = proxy.get("/metrics")
        assert status == 200
        for name in ("client_rejects_total", "server_connects_total", "server_connect_errors_total", "server_recycles_total", "session_errors_total",
                     "auth_failures_total", "credential_cache_total", "dns_changes_total", "cancels_total", "pool_wait_seconds_bucket",
                     "pool_clients", "pool_servers_active", "pool_servers_idle"):
            assert f"\nsluice_proxy_{name}" in text, name
        pools = json.loads(proxy.get("/pools")[1])["pools"]
        assert [(p["database"], p["user"]) for p in pools] == [("app", "app")]
        client.query("COMMIT")
    assert proxy.get("/healthz")[0] == 200 and proxy.get("/nothing")[0] == 404


def test_metrics_of_failures(make_proxy):
    """L40: failures are counted by their reason"""
    with make_proxy(pool={"max_size": 1, "wait_timeout_ms": 200}) as proxy, proxy.client() as holder, proxy.client() as client:
        holder.query("BEGIN")
        client.query("SELECT 1")
        with proxy.socket() as wrong:
            wrong.refused("wrong", user="app", database="app")
        wait_until(lambda: 'session_errors_total{reason="wait_timeout"} 1' in proxy.get("/metrics")[1], limit_s=5)
        wait_until(lambda: 'auth_failures_total{reason="rejected"} 1' in proxy.get("/metrics")[1], limit_s=5)


def test_readiness(make_proxy):
    """P8: clients that wait too long make the proxy not ready, and alive"""
    with make_proxy(pool={"max_size": 1}, readiness={"max_queue_time_ms": 100, "window_ms": 1000}) as proxy:
        with proxy.client() as holder, proxy.client() as client:
            holder.query("BEGIN")
            client.send(query("SELECT 1"))
            wait_until(lambda: proxy.get("/readyz")[0] == 503, limit_s=10)
            assert proxy.get("/healthz")[0] == 200
            holder.query("COMMIT")
            client.answers()
            wait_until(lambda: proxy.get("/readyz")[0] == 200, limit_s=10)


def test_liveness_without_database(make_proxy):
    """liveness does not need the database"""
    with make_proxy(server_port=1) as proxy:
        assert proxy.get("/healthz")[0] == 200


def test_documented_differences(make_proxy, server):
    """L42: names, PIDs and changed passwords are as docs/proxy.md says"""
    server.run("DROP ROLE IF EXISTS renewed; CREATE ROLE renewed LOGIN PASSWORD 'first one'")

    def enter(proxy, password, **parameters):
        return proxy.client(user="renewed", database="postgres", password=password, **parameters)

    with make_proxy(auth={"ttl_ms": 3000}, pool={"max_size": 2}) as proxy:
        with enter(proxy, "first one", application_name="till 7") as one, enter(proxy, "first one") as two:
            assert one.parameters["application_name"] == "till 7"
            assert one.value("SHOW application_name") == "till 7"
            one.query("BEGIN")
            held = one.value("SELECT pg_backend_pid()")
            other = two.value("SELECT pg_backend_pid()")
            assert held != other
            one.query("COMMIT")
            two.query("BEGIN")
            assert {two.value("SELECT pg_backend_pid()"), one.value("SELECT pg_backend_pid()")} == {held, other}
            two.query("COMMIT")
        server.run("ALTER ROLE renewed PASSWORD 'second one'")
        with enter(proxy, "first one") as late:
            assert late.query("SELECT 1") == "D[1] C[SELECT 1] Z"
        time.sleep(3.2)
        with proxy.socket() as late:
            assert late.refused("first one", user="renewed", database="postgres")["C"] == "28P01"
        with enter(proxy, "second one") as renewed:
            assert renewed.query("SELECT 1") == "D[1] C[SELECT 1] Z"


def test_log_without_secrets(proxy, server):
    """L19: no password, proof or verifier is in the log, which is JSON line by line"""
    with proxy.client() as client:
        client.query("SELECT 1")
    with proxy.socket() as wrong:
        wrong.refused("a wrong secret", user="app", database="app")
    wait_until(lambda: "did not succeed" in proxy.log.read_text())
    text = proxy.log.read_text()
    verifier = server.run("SELECT rolpassword FROM pg_authid WHERE rolname = 'app'")
    for secret in [*PASSWORDS.values(), "a wrong secret", *verifier.replace("$", ":").split(":")[2:]]:
        assert secret not in text
    for line in text.splitlines():
        json.loads(line)


def test_many_connects(proxy, server):
    """2,000 logins, half of them in TLS, leave neither descriptors nor backends behind"""
    for tls in (False, True):
        proxy.client(tls=tls).socket.close()
    wait_until(lambda: proxy.metric("clients") == 0, limit_s=10)
    before = proxy.descriptors()

    def some(_):
        for n in range(250):
            with proxy.client(tls=n % 2 == 0) as client:
                if n % 10 == 0:
                    assert client.query("SELECT 1") == "D[1] C[SELECT 1] Z"

    workers = [threading.Thread(target=some, args=(n,)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    wait_until(lambda: proxy.metric("clients") == 0, limit_s=15)
    assert proxy.descriptors() <= before + 1
    assert server.backends() <= 2


def test_wrong_start(make_proxy):
    """a proxy that cannot start says why and ends with a status"""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        proxy = make_proxy(listen={"port": taken.getsockname()[1]})
        done = subprocess.run([conftest.SLUICE, "proxy", "--config", str(proxy.file)], capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 1 and "in use" in done.stderr
    done = subprocess.run([conftest.SLUICE, "proxy", "--config", "/does/not/exist.toml"], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode != 0 and "/does/not/exist.toml" in done.stderr


def test_server_tls(make_proxy, server):
    """L6: the server's certificate is verified against its host before any password goes out"""
    verify = {"mode": "verify-full", "root_file": str(server.certificate)}
    with make_proxy(server_tls=verify, server={"host": "localhost"}) as proxy, proxy.client() as client:
        assert client.value("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") == "t"
    with make_proxy(server_tls={"mode": "verify-full"}, server={"host": "localhost"}) as proxy, proxy.socket() as client:
        fields = client.refused("app secret", user="app", database="app")
        assert fields["S"] == "FATAL" and fields["C"] == "08006"


def test_password_change(make_proxy, server):
    """cases D8, D11: a changed password, NOLOGIN and VALID UNTIL count after the cache's time"""
    server.run("DROP ROLE IF EXISTS changing; CREATE ROLE changing LOGIN PASSWORD 'old'")
    with make_proxy(auth={"ttl_ms": 300, "reread_interval_ms": 100}) as proxy:
        def works(password):
            with Client(("127.0.0.1", proxy.port)) as client:
                client.start(user="changing", database="postgres")
                return client.authenticate(password).kind == "Z"

        assert works("old")
        server.run("ALTER ROLE changing PASSWORD 'new'")
        wait_until(lambda: works("new"), limit_s=5)
        assert not works("old")
        server.run("ALTER ROLE changing NOLOGIN")
        wait_until(lambda: not works("new"), limit_s=5)
        server.run("ALTER ROLE changing LOGIN VALID UNTIL 'yesterday'")
        time.sleep(0.5)
        assert not works("new")
        server.run("ALTER ROLE changing VALID UNTIL 'tomorrow'")
        wait_until(lambda: works("new"), limit_s=10)


def test_case_d10(make_proxy):
    """case D10: connections are opened again with the client's key when they have reached their age"""
    with make_proxy(pool={"lifetime_ms": 1000, "lifetime_jitter_ms": 0}) as proxy, proxy.client() as client:
        first = client.value("SELECT pg_backend_pid()")
        time.sleep(2.2)
        assert client.value("SELECT pg_backend_pid()") != first


def test_case_d7(make_proxy, server):
    """case D7: a client's search_path never reaches the lookup"""
    server.run("CREATE SCHEMA IF NOT EXISTS evil; GRANT USAGE ON SCHEMA evil TO PUBLIC; "
               "CREATE OR REPLACE FUNCTION evil.scram_verifier(text, OUT verifier text, OUT valid_until timestamptz) RETURNS SETOF record "
               "LANGUAGE sql AS 'SELECT NULL::text, NULL::timestamptz'")
    try:
        with make_proxy() as proxy, proxy.client(search_path="evil") as client:
            assert client.value("SHOW search_path") == "evil"
        with make_proxy() as proxy, proxy.socket() as client:
            assert client.refused("wrong", user="app", database="app", search_path="evil")["C"] == "28P01"
    finally:
        server.run("DROP SCHEMA evil CASCADE")


def test_superuser_not_handed_out(proxy, server):
    """a superuser's verifier is not handed to the proxy"""
    server.run("ALTER ROLE postgres PASSWORD 'postgres secret'")
    with proxy.socket() as client:
        assert client.refused("postgres secret", user="postgres", database="postgres")["C"] == "28P01"


def test_cleartext(make_proxy, server):
    """L5 to L11: a cleartext password inside TLS is verified by the server once, later logins compare it here"""
    server.run("DROP ROLE IF EXISTS plain; CREATE ROLE plain LOGIN PASSWORD 'plain secret'")
    with make_proxy(auth={"method": "password", "verify_ttl_ms": 1500}, pool={"profile": "strict"}, client_tls={"mode": "require"}) as proxy:
        def login(password):
            with Client(("127.0.0.1", proxy.port)) as client:
                client.start_tls()
                client.start(user="plain", database="postgres")
                found = client.authenticate(password)
                return found.fields["C"] if found.kind == "E" else client.query("SELECT 1")

        served = "D[1] C[SELECT 1] Z"
        assert login("plain secret") == served
        assert login("wrong") == "28P01"
        log = server.folder / "server.log"
        before = log.read_text().count("connection authenticated: identity=\"plain\"")
        for _ in range(3):
            assert login("plain secret") == served
        assert log.read_text().count("connection authenticated: identity=\"plain\"") == before
        server.run("ALTER ROLE plain PASSWORD 'newer'")
        wait_until(lambda: login("newer") == served, limit_s=10)
        assert login("plain secret") == "28P01" or wait_until(lambda: login("plain secret") == "28P01", limit_s=10)
