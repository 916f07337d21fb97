"""What strangers send who mean harm: floods of HTTP/2 frames, and clients that write or read slowly.

Every attack runs for a few seconds from several connections without credentials, while an ordinary client asks for the
same object again and again. That client must be answered, the process must not grow without a bound, and afterwards
everything is as before.
"""

import pathlib
import socket
import ssl
import struct
import threading
import time

SECONDS = 5  # Of each attack.
CONNECTIONS = 8
SLOWEST = 10  # Seconds for an answer to the ordinary client, on a busy machine with a debug build.
GROWTH = 512  # MiB by which the process may grow during an attack.

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PING, WINDOW, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name, value):
    """A header field that is not indexed, in HPACK without Huffman codes; both parts are short."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def request(path=b"/livez", method=b"\x82"):
    """The fields of a request: :method GET (or another indexed one), :scheme https, :path, :authority."""
    return method + b"\x87" + b"\x04" + bytes([len(path)]) + path + b"\x01\x09localhost"


class Connection:
    def __init__(self, server, protocol="h2"):
        context = ssl._create_unverified_context()
        context.set_alpn_protocols([protocol])
        plain = socket.create_connection((server.client.host, server.client.port), timeout=SECONDS)
        self.socket = context.wrap_socket(plain)
        if protocol == "h2":
            self.send(PREFACE + frame(SETTINGS))

    def send(self, data):
        self.socket.sendall(data)

    def drain(self):
        """Reads what there is, so that the server is not held up by what it wants to say."""
        self.socket.settimeout(0.001)
        try:
            while self.socket.recv(1 << 16):
                pass
        except (TimeoutError, ssl.SSLWantReadError):
            pass
        finally:
            self.socket.settimeout(SECONDS)


def rapid_reset(connection, end):
    """Requests that are taken back at once (CVE-2023-44487)."""
    stream = 1
    while time.monotonic() < end:
        batch = b""
        for _ in range(100):
            batch += frame(HEADERS, END_STREAM | END_HEADERS, stream, request()) + frame(RESET, 0, stream, b"\0\0\0\x08")
            stream += 2
        connection.send(batch)
        connection.drain()


def continuation(connection, end):
    """A head that does not end (CVE-2024-24549 and its relatives)."""
    connection.send(frame(HEADERS, END_STREAM, 1, request()))
    field = literal(b"x-a", b"y" * 100) * 100
    while time.monotonic() < end:
        connection.send(frame(CONTINUATION, 0, 1, field))


def empty_continuation(connection, end):
    """A head that goes on with nothing."""
    connection.send(frame(HEADERS, END_STREAM, 1, request()))
    while time.monotonic() < end:
        connection.send(frame(CONTINUATION, 0, 1) * 1000)


def indexed_bomb(connection, end):
    """One long field in the table of HPACK, used thousands of times by a byte each."""
    value = b"z" * 3900
    # 3900 in the form of HPACK with seven bits: 127, then 3773 in groups of seven bits.
    long = b"\x40\x03x-b\x7f" + bytes([3773 & 127 | 128, 3773 >> 7]) + value
    stream = 1
    while time.monotonic() < end:
        head = request() + (long if stream == 1 else b"") + b"\xbe" * 12_000
        connection.send(frame(HEADERS, END_STREAM | END_HEADERS, stream, head))
        stream += 2
        connection.drain()


def floods(payloads):
    """Frames that want an answer or change nothing, without reading what comes back."""
    def flood(connection, end):
        while time.monotonic() < end:
            connection.send(b"".join(payloads) * 500)
    return flood


def many_streams(connection, end):
    """As many requests as possible whose bodies never come."""
    for stream in range(1, 20_001, 2):
        head = request(b"/apis", b"\x83")
        connection.send(frame(HEADERS, END_HEADERS, stream, head))
    while time.monotonic() < end:
        connection.drain()
        time.sleep(0.1)


def no_window(connection, end):
    """Requests whose answers are not taken: the window of the client is zero."""
    connection.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)))
    for stream in range(1, 1001, 2):
        connection.send(frame(HEADERS, END_STREAM | END_HEADERS, stream, request(b"/version")))
    while time.monotonic() < end:
        time.sleep(0.1)


def empty_data(connection, end):
    """A body of nothing that does not end."""
    connection.send(frame(HEADERS, END_HEADERS, 1, request(b"/apis", b"\x83")))
    while time.monotonic() < end:
        connection.send(frame(DATA, 0, 1) * 1000)


def tiny_data(connection, end):
    """Bodies of one byte for each frame."""
    stream = 1
    while time.monotonic() < end:
        head = frame(HEADERS, END_HEADERS, stream, request(b"/apis", b"\x83"))
        connection.send(head + frame(DATA, 0, stream, b"x") * 1000 + frame(DATA, END_STREAM, stream))
        stream += 2
        connection.drain()


def trailers(connection, end):
    """Fields after the body, as many as a head may have, and blocks of them again and again."""
    fields = literal(b"x-a", b"y" * 100) * 100
    stream = 1
    while time.monotonic() < end:
        batch = frame(HEADERS, END_HEADERS, stream, request(b"/apis", b"\x83")) + frame(DATA, 0, stream, b"x")
        connection.send(batch + frame(HEADERS, END_STREAM | END_HEADERS, stream, fields) * 2)
        stream += 2
        connection.drain()


def heads_of(fields):
    """Requests with a head that is not valid, or costs more than others."""
    def flood(connection, end):
        stream = 1
        while time.monotonic() < end:
            batch = b""
            for _ in range(20):
                batch += frame(HEADERS, END_STREAM | END_HEADERS, stream, fields)
                stream += 2
            connection.send(batch)
            connection.drain()
    return flood


def slow_head(connection, end):
    """A head, byte by byte."""
    for byte in b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * 1000:
        if time.monotonic() > end:
            return
        connection.send(bytes([byte]))
        time.sleep(0.05)


def slow_body(connection, end):
    """A body, byte by byte."""
    connection.send(b"POST /apis HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n\r\n")
    while time.monotonic() < end:
        connection.send(b" ")
        time.sleep(0.05)


def slow_reader(connection, end):
    """Many requests one after the other, whose answers are not read."""
    while time.monotonic() < end:
        connection.send(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)


def endless_head(connection, end):
    """Header fields without end."""
    connection.send(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n")
    while time.monotonic() < end:
        connection.send(b"X-A: " + b"b" * 1000 + b"\r\n")


HTTP2 = {
    "rapid reset": rapid_reset, "continuation": continuation, "empty continuation": empty_continuation,
    "indexed bomb": indexed_bomb, "settings": floods([frame(SETTINGS)]), "ping": floods([frame(PING, 0, 0, b"12345678")]),
    "priority": floods([frame(PRIORITY, 0, 3, b"\0\0\0\x01\x10")]), "window": floods([frame(WINDOW, 0, 0, b"\0\0\0\x01")]),
    "resets of nothing": floods([frame(RESET, 0, 1, b"\0\0\0\x08")]), "many streams": many_streams,
    "no window": no_window, "empty data": empty_data, "tiny data": tiny_data, "trailers": trailers,
    # The size of the table of HPACK, again and again.
    "table sizes": heads_of(b"\x20\x3f\xe1\x1f" * 2000 + request()),
    "empty fields": heads_of(request() + literal(b"x", b"") * 4000),
    "cookies": heads_of(request() + literal(b"cookie", b"a=b") * 1000),
    "two paths": heads_of(request() + b"\x04\x01/" * 1000), "unknown pseudo fields": heads_of(request() + literal(b":x", b"y") * 1000),
    # The same token, which is wrong, a thousand times.
    "credentials": heads_of(request() + literal(b"authorization", b"Bearer x") * 500),
}
HTTP1 = {"slow head": slow_head, "slow body": slow_body, "slow reader": slow_reader, "endless head": endless_head}


def memory(server):
    """MiB of the process."""
    text = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) // 1024


def attacked(server, attack, protocol):
    """Lets an attack run; returns the slowest answer to an ordinary client meanwhile, and the growth in MiB."""
    before, end = memory(server), time.monotonic() + SECONDS
    most, slowest, codes = before, 0.0, []

    def run():
        while time.monotonic() < end:
            try:
                connection = Connection(server, protocol)
                attack(connection, end)
            except OSError:
                # The server has had enough of it. The attacker comes again.
                time.sleep(0.02)

    attackers = [threading.Thread(target=run) for _ in range(CONNECTIONS)]
    for attacker in attackers:
        attacker.start()
    while time.monotonic() < end:
        since = time.monotonic()
        codes.append(server.client.request("GET", "/api/v1/namespaces/default", timeout=SLOWEST * 2)[0])
        slowest = max(slowest, time.monotonic() - since)
        most = max(most, memory(server))
        time.sleep(0.02)
    for attacker in attackers:
        attacker.join()
    return slowest, most - before, codes


def check(server, expect, attacks, protocol):
    """Runs attacks one after the other, prints a line for each, and returns the worst."""
    worst = 0.0
    for name, attack in attacks.items():
        slowest, growth, codes = attacked(server, attack, protocol)
        print(f"      {name:<20} {len(codes):5} answers, slowest {slowest * 1000:6.0f} ms, memory {growth:+5} MiB", flush=True)
        expect(server.process.poll() is None, f"{name}: the server has ended")
        expect(codes and set(codes) == {200}, f"{name}: answers {sorted(set(codes))}")
        expect(slowest < SLOWEST, f"{name}: an answer took {slowest:.1f} s")
        expect(growth < GROWTH, f"{name}: the process grew by {growth} MiB")
        worst = max(worst, slowest)
    expect(server.client.create("after-all-that") == 201, "no write")
    expect(server.stop() == 0, "the server ends with an error")
    return f"{len(attacks)} attacks; slowest answer {worst * 1000:.0f} ms"
