"""A server that follows a script: what a real one would never do, or not when a test needs it. One thread a connection; the
script of a test takes a Connection from its first byte, or from the login that Connection.log_in() does as PostgreSQL would."""
import base64
import contextlib
import hashlib
import hmac
import os
import socket
import struct
import threading

from wire import TIME_LIMIT_S, Closed, Message, message, text

SALT, ITERATIONS = b"a salt for tests", 4096
PARAMETERS = {"server_version": "15.0", "client_encoding": "UTF8", "standard_conforming_strings": "on", "DateStyle": "ISO, MDY",
              "TimeZone": "UTC", "IntervalStyle": "postgres", "integer_datetimes": "on", "server_encoding": "UTF8",
              "is_superuser": "off", "session_authorization": "app", "application_name": "", "default_transaction_read_only": "off",
              "in_hot_standby": "off"}


def keys_of(password, salt=SALT, iterations=ITERATIONS):
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    return hashlib.sha256(client_key).digest(), hmac.digest(salted, b"Server Key", "sha256")


def verifier(password, salt=SALT, iterations=ITERATIONS):
    """The text that pg_authid would hold."""
    stored, server = (base64.b64encode(key).decode() for key in keys_of(password, salt, iterations))
    return f"SCRAM-SHA-256${iterations}:{base64.b64encode(salt).decode()}${stored}:{server}"


def error(sqlstate, words, severity="ERROR"):
    return message("E", b"S" + text(severity) + b"V" + text(severity) + b"C" + text(sqlstate) + b"M" + text(words) + b"\0")


def ready(status="I"):
    return message("Z", status.encode())


def tag(words):
    return message("C", text(words))


def row(*values):
    payload = struct.pack("!h", len(values))
    for value in values:
        payload += struct.pack("!i", len(value)) + value.encode()
    return message("D", payload)


class Connection:
    def __init__(self, server, peer):
        self.server, self.socket, self.buffer, self.startup, self.code = server, peer, b"", {}, 0
        peer.settimeout(TIME_LIMIT_S)

    def read_bytes(self, count):
        while len(self.buffer) < count:
            got = self.socket.recv(1 << 16)
            if not got:
                raise Closed()
            self.buffer += got
        found, self.buffer = self.buffer[:count], self.buffer[count:]
        return found

    def read(self):
        head = self.read_bytes(5)
        found = Message(chr(head[0]), self.read_bytes(struct.unpack("!i", head[1:])[0] - 4))
        self.server.seen.append(found)
        return found

    def send(self, *parts):
        self.socket.sendall(b"".join(parts))

    def read_startup(self):
        """The first packet; TLS is declined. Sets code, and startup's parameters or the cancel key."""
        while True:
            length = struct.unpack("!i", self.read_bytes(4))[0]
            packet = self.read_bytes(length - 4)
            self.code = struct.unpack_from("!i", packet)[0]
            if self.code in (80877103, 80877104):
                self.send(b"N")
                continue
            if self.code == 80877102:
                self.server.cancels.append(packet[4:])
                raise Closed()
            words = packet[4:].split(b"\0")
            self.startup = {n.decode(): v.decode() for n, v in zip(words[::2], words[1::2]) if n}
            return self

    def scram(self, password, salt=SALT, iterations=ITERATIONS):
        """The server's side of SCRAM-SHA-256; the proof is checked."""
        stored, server_key = keys_of(password, salt, iterations)
        self.send(message("R", struct.pack("!i", 10) + text("SCRAM-SHA-256") + b"\0"))
        payload = self.read().payload
        first = payload[payload.index(b"\0") + 5:].decode()
        gs2, bare = first[:3], first[3:]
        nonce = bare.split("r=")[1] + base64.b64encode(os.urandom(18)).decode()
        server_first = f"r={nonce},s={base64.b64encode(salt).decode()},i={iterations}"
        self.send(message("R", struct.pack("!i", 11) + server_first.encode()))
        final = self.read().payload.decode()
        without_proof, proof = final.rsplit(",p=", 1)
        assert without_proof == f"c={base64.b64encode(gs2.encode()).decode()},r={nonce}", without_proof
        covered = f"{bare},{server_first},{without_proof}".encode()
        signature = hmac.digest(stored, covered, "sha256")
        key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature))
        if hashlib.sha256(key).digest() != stored:
            self.send(error("28P01", "password authentication failed", "FATAL"))
            raise Closed()
        self.send(message("R", struct.pack("!i", 12) + b"v=" + base64.b64encode(hmac.digest(server_key, covered, "sha256"))))

    def log_in(self, password="app secret", **parameters):
        """As PostgreSQL would, from the first byte to ReadyForQuery."""
        self.read_startup()
        self.scram(password)
        self.welcome(**parameters)
        return self

    def welcome(self, **parameters):
        self.send(message("R", struct.pack("!i", 0)),
                  *[message("S", text(n) + text(v)) for n, v in {**PARAMETERS, **parameters}.items()],
                  message("K", struct.pack("!I", threading.get_native_id()) + os.urandom(4)), ready())

    def answer_queries(self, answer=None):
        """Until the client leaves: `answer(sql)` gives the bytes before ReadyForQuery; without it each query gives one row."""
        while True:
            found = self.read()
            if found.kind == "X":
                return
            if found.kind == "Q":
                sql = found.payload[:-1].decode()
                self.send(answer(sql) if answer else row(sql) + tag("SELECT 1"), ready())


class FakeServer:
    """`script(connection)` runs for each connection; its end closes it. `seen` holds every message the scripts read."""

    def __init__(self, script):
        self.script, self.seen, self.cancels, self.connections, self.faults = script, [], [], 0, []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        self.open = set()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self.listener.accept()
                self.connections += 1
                self.open.add(peer)
                threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    def serve(self, peer):
        try:
            self.script(Connection(self, peer))
        except (Closed, ConnectionError, OSError):
            pass
        except Exception as fault:  # a test asks for these at its end
            self.faults.append(fault)
        finally:
            self.open.discard(peer)
            peer.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)  # wakes accept(), which would keep the port open
        self.listener.close()
        for peer in list(self.open):
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        assert not self.faults, self.faults
