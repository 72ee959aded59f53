"""The first bytes of a client: TLS and its alternatives, protocol versions, startup packets of every shape (cases D)."""
import ssl
import struct
import time

import pytest

from wire import GSSENC_REQUEST, PROTOCOL_30, PROTOCOL_32, SSL_REQUEST, Client, any_certificate, startup, text


def ended(client):
    """What the peer still says, as text, before it closes."""
    return " ".join(str(m) for m in client.rest())


def is_closed(client):
    client.socket.settimeout(10)
    try:
        return client.socket.recv(1) == b""
    except ConnectionResetError:
        return True


def test_plain_and_tls(proxy):
    """a client logs in in plaintext and inside TLS"""
    for tls in (False, True):
        with proxy.client(tls=tls) as client:
            assert client.query("SELECT 1") == "D[1] C[SELECT 1] Z"
            assert client.parameters["server_encoding"] == "UTF8"


def test_plaintext_refused(make_proxy):
    """L1: where TLS is required a startup in plaintext gets FATAL 28000"""
    with make_proxy(client_tls={"mode": "require"}) as proxy:
        with proxy.socket() as client:
            fields = client.refused(user="app", database="app")
            assert (fields["S"], fields["C"]) == ("FATAL", "28000")
        with proxy.client(tls=True) as client:
            assert client.query("SELECT 1") == "D[1] C[SELECT 1] Z"


def test_tls_switched_off(make_proxy):
    """without TLS an SSLRequest is answered with N, and direct TLS is closed"""
    with make_proxy(client_tls={"mode": "disable"}) as proxy:
        with proxy.socket() as client:
            assert client.send(SSL_REQUEST).read_bytes(1) == b"N"
            client.login("app secret", user="app", database="app")
        with proxy.socket() as client:
            client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
            assert is_closed(client)


@pytest.mark.parametrize("order", ["gss then ssl", "ssl declined then gss"])
def test_case_d15(make_proxy, order):
    """case D15: GSSENCRequest is answered with N, and either order goes on"""
    with make_proxy(client_tls={"mode": "allow" if order == "gss then ssl" else "disable"}) as proxy, proxy.socket() as client:
        if order == "gss then ssl":
            assert client.send(GSSENC_REQUEST).read_bytes(1) == b"N"
            client.start_tls()
        else:
            assert client.send(SSL_REQUEST).read_bytes(1) == b"N"
            assert client.send(GSSENC_REQUEST).read_bytes(1) == b"N"
        client.login("app secret", user="app", database="app")
        assert client.query("SELECT 1") == "D[1] C[SELECT 1] Z"


def test_case_d15_twice(make_proxy):
    """case D15: the same request a second time is FATAL 0A000"""
    with make_proxy(client_tls={"mode": "disable"}) as proxy:
        for request in (SSL_REQUEST, GSSENC_REQUEST):
            with proxy.socket() as client:
                assert client.send(request).read_bytes(1) == b"N"
                assert ended(client.send(request)) == "E[0A000]"


def test_bytes_behind_ssl_request(proxy):
    """L1: bytes in the clear behind an SSLRequest are refused, never taken into the TLS session"""
    with proxy.socket() as client:
        client.send(SSL_REQUEST + startup(user="app", database="app"))
        said = client.rest() if client.read_bytes(1) in (b"S", b"N") else client.rest()
        assert not any(m.kind == "R" for m in said)


@pytest.mark.parametrize("protocols, accepted", [(["postgresql"], True), (["http/1.1"], False), ([], False)])
def test_case_d17(proxy, protocols, accepted):
    """case D17: TLS from the first byte needs the protocol name postgresql"""
    context = any_certificate()
    if protocols:
        context.set_alpn_protocols(protocols)
    with proxy.socket() as client:
        if accepted:
            client.start_tls(context, request=False)
            assert client.socket.selected_alpn_protocol() == "postgresql"
            client.login("app secret", user="app", database="app")
            assert client.query("SELECT 1") == "D[1] C[SELECT 1] Z"
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                client.start_tls(context, request=False)
                client.socket.recv(1)


def test_nested_request(proxy):
    """case D17: an SSLRequest inside of TLS is refused"""
    context = any_certificate()
    context.set_alpn_protocols(["postgresql"])
    for direct in (True, False):
        with proxy.socket() as client:
            client.start_tls(context, request=not direct)
            client.send(SSL_REQUEST)
            assert ended(client) == "E[0A000]"


@pytest.mark.parametrize("minor", [2, 3, 9999])
def test_protocol_negotiation(proxy, minor):
    """L2: a newer minor version is negotiated down to 3.2 at most, unknown protocol options are named"""
    with proxy.socket() as client:
        client.send(startup(version=3 << 16 | minor, user="app", database="app", **{"_pq_.never_heard_of": "1"}))
        found = client.read()
        assert found.kind == "v"
        version, count = struct.unpack_from("!ii", found.payload)
        assert version in (PROTOCOL_30, PROTOCOL_32) and count == 1
        assert found.payload[8:] == text("_pq_.never_heard_of")
        client.authenticate("app secret")
        assert client.query("SELECT 1") == "D[1] C[SELECT 1] Z"
        assert len(client.key) == (4 if version == PROTOCOL_30 else 32)


def test_protocol_too_new(proxy):
    """protocol 4.0 is FATAL 0A000"""
    with proxy.socket() as client:
        client.send(startup(version=4 << 16, user="app"))
        assert ended(client) == "E[0A000]"


@pytest.mark.parametrize("length", [0, 4, 7, 10005, 0x7FFFFFFF, -1])
def test_case_d19_length(proxy, length):
    """case D19: an impossible length is closed at once, without an answer and without a wait for the body"""
    with proxy.socket() as client:
        client.send(struct.pack("!ii", length, PROTOCOL_30))
        assert is_closed(client)


def test_case_d19_bytes(proxy):
    """case D19: 9 KB of options, one byte per segment"""
    with proxy.socket() as client:
        packet = startup(user="app", database="app", options="-c geqo=off " + "-c application_name=" + "x" * 9000)
        for at in range(0, len(packet), 97):
            client.send(packet[at:at + 97])
        found = client.authenticate("app secret")
        assert found.kind == "Z"
        assert client.value("SHOW geqo") == "off"


@pytest.mark.parametrize("body", [b"user\0app\0database\0app\0", b"user\0app\0database\0\0\0x", b"user", b"\0\0\0\0\0\0\0\0\0"],
                         ids=["no end", "rest behind the end", "no value", "nothing but ends"])
def test_case_d19_layout(proxy, body):
    """case D19: a malformed startup packet is 08P01 or 28000, as the server says"""
    with proxy.socket() as client:
        client.send(struct.pack("!ii", len(body) + 8, PROTOCOL_30) + body)
        assert ended(client) in ("E[08P01]", "E[28000]")


def test_case_d20(either):
    """case D20: options in all their forms, with an escaped blank"""
    with either.client(options=r"-c application_name=a\ b --geqo=off -cwork_mem=5MB") as client:
        assert client.value("SHOW application_name") == "a b"
        assert client.value("SHOW geqo") == "off"
        assert client.value("SHOW work_mem") == "5MB"


def test_case_d20_unknown(proxy):
    """case D20: an unknown form of options is a clean FATAL that names it"""
    with proxy.socket() as client:
        fields = client.refused("app secret", user="app", database="app", options="-x what")
        assert fields["S"] == "FATAL" and fields["C"] == "42601"


def test_case_g1(either):
    """case G1: startup parameters of drivers are honoured"""
    with either.client(extra_float_digits="2", IntervalStyle="iso_8601", geqo="off", search_path="pg_catalog", TimeZone="Asia/Tokyo") as client:
        assert client.parameters["IntervalStyle"] == "iso_8601"
        assert client.parameters["TimeZone"] == "Asia/Tokyo"
        for name, value in {"extra_float_digits": "2", "geqo": "off", "search_path": "pg_catalog"}.items():
            assert client.value(f"SHOW {name}") == value


def test_wrong_setting(either, proxy):
    """a startup setting that does not exist, or has a wrong value, is refused at the login"""
    target = either.socket() if hasattr(either, "socket") else Client(("127.0.0.1", either.port))
    with target as client:
        assert client.refused("app secret", user="app", database="app", TimeZone="Nowhere/Land")["C"] == "22023"
    target = either.socket() if hasattr(either, "socket") else Client(("127.0.0.1", either.port))
    with target as client:
        assert client.refused("app secret", user="app", database="app", no_such_setting="1")["C"] == "42704"


def test_datestyle_spelling(either):
    """a startup setting is reported in the server's spelling"""
    with either.client(DateStyle="ISO") as client:
        assert client.parameters["DateStyle"] == "ISO, MDY"


def test_case_d2(make_proxy):
    """case D2: one deadline over all phases of a login, and normal logins go on meanwhile"""
    with make_proxy(limits={"login_timeout_ms": 1500}) as proxy:
        before = proxy.descriptors()
        stalled = [proxy.socket() for _ in range(45)]
        for n, client in enumerate(stalled):
            if n % 3 == 0:
                client.send(SSL_REQUEST)
            elif n % 3 == 1:
                client.send(SSL_REQUEST)
                client.read_bytes(1)
                client.send(b"\x16\x03\x01\x02\x00\x01")
            else:
                client.send(startup(user="app", database="app")[:10])
        for _ in range(5):
            with proxy.client() as client:
                assert client.query("SELECT 1") == "D[1] C[SELECT 1] Z"
        end = time.monotonic() + 15
        while proxy.descriptors() > before + 4 and time.monotonic() < end:
            time.sleep(0.1)
        assert proxy.descriptors() <= before + 4
        for client in stalled:
            client.socket.close()


def test_case_d9(proxy, server):
    """case D9: an unknown role is refused as a wrong password is, and no pool comes of it"""
    with proxy.socket() as client:
        unknown = client.refused("whatever", user="no_such_role", database="app")
    with proxy.socket() as client:
        wrong = client.refused("whatever", user="app", database="app")
    assert (unknown["S"], unknown["C"]) == (wrong["S"], wrong["C"]) == ("FATAL", "28P01")
    assert unknown["M"].replace("no_such_role", "app") == wrong["M"]
    assert server.backends("app") == 0
    with proxy.socket() as client:
        assert client.refused("x", user="", database="app")["C"] == "28000"
    with proxy.socket() as client:
        assert client.refused("x", user="u" * 64, database="app")["C"] == "42622"


def test_case_d23(proxy):
    """case D23: a database that does not exist is 3D000 at the login"""
    with proxy.socket() as client:
        assert client.refused("app secret", user="app", database="no_such_db")["C"] == "3D000"


def test_case_d22(proxy):
    """case D22: only a CancelRequest of the right length acts, none does harm"""
    with proxy.client() as client:
        client.send(b"Q" + struct.pack("!i", 4 + len("SELECT pg_sleep(1)") + 1) + text("SELECT pg_sleep(1)"))
        for extra in (b"\0", b"x" * 256, b"y" * 9984):
            with proxy.socket() as other:
                other.send(struct.pack("!iiI", 12 + len(client.key + extra), 80877102, client.process_id) + client.key + extra)
                assert is_closed(other)
        with proxy.socket() as other:
            other.send(struct.pack("!iiI", 12, 80877102, client.process_id))
            assert is_closed(other)
        assert client.answers() == "D[] C[SELECT 1] Z"


def test_channel_binding(proxy):
    """case D13: psql with channel_binding=require connects over TLS, and no binding is offered in plaintext"""
    import os
    import subprocess

    def psql(options):
        return subprocess.run(["psql", "-X", "-A", "-t", "-c", "SELECT 'bound'",
                               f"host=127.0.0.1 port={proxy.port} user=app dbname=app {options}"], capture_output=True, text=True,
                              env={**os.environ, "PGPASSWORD": "app secret"}, timeout=60)

    assert psql("sslmode=require channel_binding=require").stdout == "bound\n"
    assert psql("sslmode=require channel_binding=prefer").stdout == "bound\n"
    assert "channel binding" in psql("sslmode=disable channel_binding=require").stderr


def test_unix_socket(make_proxy, tmp_path):
    """a Unix socket in a folder, named as PostgreSQL names it"""
    import tempfile
    folder = tempfile.mkdtemp(prefix="sluice")
    proxy = make_proxy()
    proxy.configuration["listen"]["addresses"].append(folder)
    proxy.write()
    with proxy:
        with Client(f"{folder}/.s.PGSQL.{proxy.port}") as client:
            client.login("app secret", user="app", database="app")
            assert client.query("SELECT 1") == "D[1] C[SELECT 1] Z"
