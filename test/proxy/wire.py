"""The wire protocol from the client's side, in the open: every message is built and read by hand, so that a test decides about
each byte and each split. Blocking sockets with a time limit; a test that waits for ever fails instead.

Answers are written as the field reports write them: '1' ParseComplete, 'C[COPY 1]' a tag, 'E[22012]' an error, 'Z' and
'Z[T]' ReadyForQuery (idle is left out), 'D[a|b]' a row, 'S[TimeZone=UTC]' a reported setting.
"""
import base64
import hashlib
import hmac
import os
import socket
import ssl
import struct

PROTOCOL_30 = 3 << 16
PROTOCOL_32 = 3 << 16 | 2
SSL_REQUEST = struct.pack("!ii", 8, 80877103)
GSSENC_REQUEST = struct.pack("!ii", 8, 80877104)
TIME_LIMIT_S = 30


def message(kind, payload=b""):
    return kind.encode() + struct.pack("!i", len(payload) + 4) + payload


def text(value):
    return (value if isinstance(value, bytes) else value.encode()) + b"\0"


def startup(version=PROTOCOL_30, **parameters):
    pairs = b"".join(text(name) + text(value) for name, value in parameters.items()) + b"\0"
    return struct.pack("!ii", len(pairs) + 8, version) + pairs


def query(sql):
    return message("Q", text(sql))


def parse(sql, name="", types=()):
    return message("P", text(name) + text(sql) + struct.pack("!h", len(types)) + b"".join(struct.pack("!I", t) for t in types))


def bind(statement="", portal="", values=()):
    """All values and results as text."""
    payload = text(portal) + text(statement) + struct.pack("!hh", 0, len(values))
    for value in values:
        payload += struct.pack("!i", -1) if value is None else struct.pack("!i", len(str(value))) + str(value).encode()
    return message("B", payload + struct.pack("!h", 0))


def describe_statement(name=""):
    return message("D", b"S" + text(name))


def describe_portal(name=""):
    return message("D", b"P" + text(name))


def close_statement(name=""):
    return message("C", b"S" + text(name))


def close_portal(name=""):
    return message("C", b"P" + text(name))


def execute(portal="", rows=0):
    return message("E", text(portal) + struct.pack("!i", rows))


def copy_data(data):
    return message("d", data)


SYNC, FLUSH, TERMINATE = message("S"), message("H"), message("X")
COPY_DONE = message("c")


def copy_fail(reason):
    return message("f", text(reason))


def fields(payload):
    """Fields of an ErrorResponse or NoticeResponse by their letter."""
    return {part[:1].decode(): part[1:].decode(errors="replace") for part in payload.split(b"\0") if part}


class Closed(Exception):
    """The peer closed the connection where an answer was expected."""


class Message:
    def __init__(self, kind, payload):
        self.kind, self.payload = kind, payload

    @property
    def fields(self):
        return fields(self.payload)

    @property
    def values(self):
        """A row's values, or those of any list of counted texts."""
        count, at, found = struct.unpack_from("!h", self.payload)[0], 2, []
        for _ in range(count):
            length = struct.unpack_from("!i", self.payload, at)[0]
            at += 4
            found.append(None if length < 0 else self.payload[at:at + length].decode())
            at += max(length, 0)
        return found

    def __str__(self):
        if self.kind in "EN":
            return f"{self.kind}[{self.fields.get('C', '')}]"
        if self.kind == "C":
            return f"C[{self.payload[:-1].decode()}]"
        if self.kind == "D":
            return "D[" + "|".join("" if v is None else v for v in self.values) + "]"
        if self.kind == "Z":
            return "Z" if self.payload == b"I" else f"Z[{self.payload.decode()}]"
        if self.kind == "S":
            name, value = self.payload.split(b"\0")[:2]
            return f"S[{name.decode()}={value.decode()}]"
        return self.kind

    __repr__ = __str__


class Client:
    """One socket. `connect_to` is a (host, port) pair or the path of a Unix socket."""

    def __init__(self, connect_to, time_limit_s=TIME_LIMIT_S):
        if isinstance(connect_to, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(time_limit_s)
            self.socket.connect(connect_to)
        else:
            self.socket = socket.create_connection(connect_to, timeout=time_limit_s)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.parameters = {}
        self.key = None
        self.process_id = None
        self.certificate = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    # --- Bytes and messages ---

    def send(self, *parts):
        self.socket.sendall(b"".join(parts))
        return self

    def send_in_pieces(self, data, size=1):
        for at in range(0, len(data), size):
            self.socket.sendall(data[at:at + size])
        return self

    def read_bytes(self, count):
        while len(self.buffer) < count:
            got = self.socket.recv(1 << 16)
            if not got:
                raise Closed(f"closed with {len(self.buffer)} of {count} bytes")
            self.buffer += got
        found, self.buffer = self.buffer[:count], self.buffer[count:]
        return found

    def read(self):
        head = self.read_bytes(5)
        return Message(chr(head[0]), self.read_bytes(struct.unpack("!i", head[1:])[0] - 4))

    def read_until(self, kind="Z", count=1):
        """Every message up to the count-th of that kind."""
        found = []
        while count:
            found.append(self.read())
            count -= found[-1].kind == kind
        return found

    def answers(self, count=1, leave_out="TtNS"):
        """The answers up to the count-th ReadyForQuery as one text, without descriptions, notices and settings."""
        return " ".join(str(m) for m in self.read_until("Z", count) if m.kind not in leave_out)

    def rest(self):
        """Everything until the peer closes."""
        found = []
        try:
            while True:
                found.append(self.read())
        except (Closed, ConnectionResetError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return found

    def is_silent(self, for_s=0.3):
        """No byte arrives for so long."""
        if self.buffer:
            return False
        limit = self.socket.gettimeout()
        self.socket.settimeout(for_s)
        try:
            got = self.socket.recv(1)
            self.buffer += got
            return False
        except (TimeoutError, socket.timeout):
            return True
        finally:
            self.socket.settimeout(limit)

    def query(self, sql):
        """A simple query's answers as one text."""
        return self.send(query(sql)).answers()

    def value(self, sql):
        """The single value a simple query gives; an error is raised with its fields."""
        found = self.send(query(sql)).read_until()
        for answer in found:
            if answer.kind == "E":
                raise AssertionError(f"{sql}: {answer.fields}")
        return next((a.values[0] for a in found if a.kind == "D"), None)

    # --- Login ---

    def start_tls(self, context=None, request=True):
        if request:
            self.send(SSL_REQUEST)
            answer = self.read_bytes(1)
            assert answer == b"S", answer
        context = context or any_certificate()
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.certificate = self.socket.getpeercert(binary_form=True)
        return self

    def start(self, version=PROTOCOL_30, **parameters):
        return self.send(startup(version, **parameters))

    def login(self, password=None, **parameters):
        """From the StartupMessage to the first ReadyForQuery. Returns self; a refusal is returned by refused()."""
        self.start(**parameters)
        found = self.authenticate(password)
        if found.kind == "E":
            raise AssertionError(f"login of {parameters}: {found.fields}")
        return self

    def refused(self, password=None, **parameters):
        """The fields of the error a login ends with."""
        found = self.start(**parameters).authenticate(password)
        assert found.kind == "E", f"the login was not refused: {found}"
        return found.fields

    def authenticate(self, password):
        """Answers what the server asks for; the last message read: ReadyForQuery or the error."""
        scram = None
        while True:
            found = self.read()
            if found.kind in "EZ":
                return found
            if found.kind == "S":
                name, value = found.payload.split(b"\0")[:2]
                self.parameters[name.decode()] = value.decode()
            elif found.kind == "K":
                self.process_id, self.key = struct.unpack_from("!I", found.payload)[0], found.payload[4:]
            elif found.kind == "R":
                code, data = struct.unpack_from("!i", found.payload)[0], found.payload[4:]
                if code == 3:
                    self.send(message("p", text(password)))
                elif code == 10:
                    scram = Scram(password)
                    self.send(message("p", text("SCRAM-SHA-256") + struct.pack("!i", len(scram.first())) + scram.first()))
                elif code == 11:
                    self.send(message("p", scram.final(data)))
                elif code == 12:
                    scram.check(data)
                elif code != 0:
                    raise AssertionError(f"authentication request {code}")

    def cancel_packet(self):
        return struct.pack("!iiI", 12 + len(self.key), 80877102, self.process_id) + self.key

    def reset(self):
        """Ends the connection with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def any_certificate():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Scram:
    """A client's side of SCRAM-SHA-256 (RFC 7677), without channel binding unless `binding` holds its data."""

    def __init__(self, password, binding=None, gs2=None):
        self.password = (password or "").encode()
        self.nonce = base64.b64encode(os.urandom(18)).decode()
        self.gs2 = gs2 or ("p=tls-server-end-point,," if binding else "n,,")
        self.binding = binding or b""
        self.server_signature = None

    def bare(self):
        return f"n=,r={self.nonce}"

    def first(self):
        return (self.gs2 + self.bare()).encode()

    def final(self, server_first):
        found = dict(part.split("=", 1) for part in server_first.decode().split(","))
        salted = hashlib.pbkdf2_hmac("sha256", self.password, base64.b64decode(found["s"]), int(found["i"]))
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        without_proof = f"c={base64.b64encode(self.gs2.encode() + self.binding).decode()},r={found['r']}"
        covered = f"{self.bare()},{server_first.decode()},{without_proof}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), covered, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature))
        self.server_signature = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), covered, "sha256")
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final):
        assert base64.b64decode(server_final.decode().removeprefix("v=")) == self.server_signature, "the server's signature is wrong"
