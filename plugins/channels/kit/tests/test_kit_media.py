"""Files behind URLs of others: caps, addresses, redirects, types and names."""

from __future__ import annotations

import contextlib
import gzip
import ssl
from collections.abc import AsyncGenerator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from hypothesis import example, given
from hypothesis import strategies as st
from jackfield.errors import AuthFailed, ChannelError, ChatNotFound, SendNotAllowed, TooLarge, Transient
from jackfield.testing.waiting import soon
from jackfield_channel_kit.guard import Guard, is_public
from jackfield_channel_kit.http import Http, _tls
from jackfield_channel_kit.media import download, safe_name, sniff
from jackfield_channel_kit.testing import FakePlatform, Recorded, Reply
from jackfield_channel_kit.testing.raw import answering, raw_server

BEARER = {"Authorization": "Bearer file-token"}


class Files(FakePlatform):
    def __init__(self) -> None:
        super().__init__()
        self.target = ""
        self.on("GET", "/file", self.file)
        self.on("GET", "/packed", self.packed)
        self.on("GET", "/away", self.away)

    async def file(self, request: Recorded) -> Reply:
        return Reply(200, b"x" * 3000)

    async def packed(self, request: Recorded) -> Reply:
        return Reply(200, gzip.compress(bytes(32 * 1024 * 1024)), {"Content-Encoding": "gzip"})

    async def away(self, request: Recorded) -> Reply:
        return Reply(302, None, {"Location": self.target})


@pytest.fixture
async def files() -> AsyncGenerator[Files, None]:
    async with Files() as running:
        yield running


@pytest.fixture
async def http() -> AsyncGenerator[Http, None]:
    async with Http("https://platform.invalid", headers={"Authorization": "Bearer own-token"}) as client:
        yield client


async def fetched(http: Http, url: str, *, limit: int = 10_000, allow_private: bool = True, **more: Any) -> bytes:
    async def read() -> bytes:
        async with contextlib.aclosing(download(http, url, limit=limit, allow_private=allow_private, **more)) as parts:
            return b"".join([part async for part in parts])

    return await soon(read(), "the file")


async def refused(http: Http, url: str, **more: Any) -> ChannelError:
    with pytest.raises(ChannelError) as raised:
        await fetched(http, url, **more)
    return raised.value


class Names:
    """A resolver of ours: each name's addresses, the next ones at each question."""

    def __init__(self, **names: Sequence[Sequence[str]]) -> None:
        self._names = {name.replace("_", "."): list(answers) for name, answers in names.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        answers = self._names.get(host)
        if answers is None:
            raise OSError(f"no {host}")
        return answers.pop(0) if len(answers) > 1 else answers[0]


async def test_a_file_comes_whole_with_the_credentials_it_was_given(files: Files, http: Http) -> None:
    assert await fetched(http, files.url + "/file", headers=BEARER) == b"x" * 3000
    assert files.requests[0].headers["authorization"] == "Bearer file-token"
    await fetched(http, files.url + "/file")
    assert "authorization" not in files.requests[1].headers


@pytest.mark.parametrize("size", [2999, 0])
async def test_a_file_that_says_it_is_too_large_is_not_fetched(files: Files, http: Http, size: int) -> None:
    """C071."""
    error = await refused(http, files.url + "/file", limit=size)
    assert isinstance(error, TooLarge)
    assert error.limit == size


async def test_a_file_of_unknown_size_is_fetched_up_to_the_limit_and_not_beyond(http: Http) -> None:
    """C071: 3 KB without a size are accepted; a stream without an end stops at the limit."""
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    async with raw_server(answering(head + bytes(3000))) as url:
        assert len(await fetched(http, url, limit=3000)) == 3000
    async with raw_server(answering(head, again=bytes(3000))) as url:
        assert isinstance(await refused(http, url, limit=10_000), TooLarge)


async def test_a_bomb_stops_at_the_limit(files: Files, http: Http) -> None:
    """C071: 32 MB in 32 KB."""
    assert isinstance(await refused(http, files.url + "/packed", limit=100_000), TooLarge)


@pytest.mark.parametrize(("status", "kind"), [(401, AuthFailed), (404, ChatNotFound), (500, Transient)])
async def test_a_refusal_is_told_in_the_cores_words(
    files: Files, http: Http, status: int, kind: type[ChannelError]
) -> None:
    files.fail_next(status)
    assert isinstance(await refused(http, files.url + "/file"), kind)


@pytest.mark.parametrize("rest", [b"", b"x" * 10])
async def test_a_file_that_breaks_off_is_not_taken_for_a_whole_one(http: Http, rest: bytes) -> None:
    async with raw_server(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + rest)) as url:
        assert isinstance(await refused(http, url), Transient)


async def test_a_file_that_comes_in_drops_ends_with_its_time(http: Http) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n"
    async with raw_server(answering(head, again=b"x")) as url:
        assert isinstance(await refused(http, url, timeout=0.5), Transient)


PRIVATE = [
    "http://127.0.0.1/x",
    "http://localhost/x",
    "http://127.1/x",
    "http://2130706433/x",
    "http://0x7f000001/x",
    "http://0.0.0.0/x",
    "http://[::1]/x",
    "http://[::ffff:127.0.0.1]/x",
    "http://[64:ff9b::7f00:1]/x",
    "http://[2002:7f00:1::]/x",
    "http://169.254.169.254/latest/meta-data",
    "http://10.1.2.3/x",
    "http://192.168.0.1/x",
    "http://100.64.0.1/x",
    "http://224.0.0.1/x",
    "http://[fe80::1]/x",
    "http://[fd00::1]/x",
    "file:///etc/passwd",
    "ftp://example.com/x",
    "//example.com/x",
    "http://user:password@example.com/x",
    "http://example.com:99999/x",
    "http://[::1/x",
    "http:///x",
]


@pytest.mark.parametrize("url", PRIVATE)
async def test_what_does_not_lie_in_the_open_internet_is_not_fetched(http: Http, url: str) -> None:
    assert isinstance(await refused(http, url, allow_private=False), SendNotAllowed)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(address)


async def test_a_name_with_one_private_address_is_refused(http: Http) -> None:
    names = Names(evil_example=[["8.8.8.8", "10.0.0.1"]])
    assert isinstance(await refused(http, "http://evil.example/x", allow_private=False, resolve=names), SendNotAllowed)


async def test_the_connection_goes_to_the_address_that_was_checked_and_the_name_is_asked_once() -> None:
    """DNS rebinding: the second answer would have been this machine."""
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, content=b"ok")

    names = Names(evil_example=[["8.8.8.8"], ["127.0.0.1"]])
    async with Http("https://platform.invalid", transport=httpx2.MockTransport(answer)) as http:
        url = "https://evil.example:8443/x?y"
        assert await fetched(http, url, allow_private=False, resolve=names) == b"ok"
        assert names.asked == ["evil.example"]
        assert str(seen[0].url) == "https://8.8.8.8:8443/x?y"
        assert seen[0].headers["host"] == "evil.example:8443"
        assert seen[0].extensions["sni_hostname"] == "evil.example"
        assert isinstance(await refused(http, url, allow_private=False, resolve=names), SendNotAllowed)
        assert len(seen) == 1


async def test_the_pinned_connection_works_and_is_not_lent_to_another_name(files: Files, http: Http) -> None:
    """Two names at one address: each is asked for by its own name, on its own connection."""
    port = files.url.rpartition(":")[2]
    names = Names(a_example=[["127.0.0.1"]], b_example=[["127.0.0.1"]])
    for name in ("a.example", "b.example"):
        await fetched(http, f"http://{name}:{port}/file", resolve=names)
    assert [request.headers["host"] for request in files.requests] == [f"a.example:{port}", f"b.example:{port}"]
    assert len({request.peer for request in files.requests}) == 2


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ssl.SSLContext]:
    """A server's side of TLS for a.example, whose issuer this machine trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a.example")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("a.example")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert = tmp_path / "cert.pem"
    cert.write_bytes(made.public_bytes(Encoding.PEM))
    private = tmp_path / "key.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    _tls.cache_clear()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, private)
    yield context
    _tls.cache_clear()


async def test_a_pinned_connection_checks_the_certificate_against_the_name(
    certificate: ssl.SSLContext, http: Http
) -> None:
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    names = Names(a_example=[["127.0.0.1"]], b_example=[["127.0.0.1"]])
    async with raw_server(answering(ok), ssl=certificate) as url:
        port = url.rpartition(":")[2]
        assert await fetched(http, f"https://a.example:{port}/x", resolve=names) == b"ok"
        error = await refused(http, f"https://b.example:{port}/x", resolve=names)
    assert isinstance(error, Transient)
    assert "certificate" in error.message


async def test_an_address_that_does_not_answer_is_followed_by_the_next(files: Files, http: Http) -> None:
    port = files.url.rpartition(":")[2]
    names = Names(a_example=[["127.0.0.2", "127.0.0.1"]])
    assert await fetched(http, f"http://a.example:{port}/file", resolve=names)


async def test_a_redirect_to_a_private_address_is_refused() -> None:
    seen: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.url.host)
        return httpx2.Response(302, headers={"Location": "http://inner.example/secret"})

    names = Names(outer_example=[["8.8.8.8"]], inner_example=[["169.254.169.254"]])
    async with Http("https://platform.invalid", transport=httpx2.MockTransport(answer)) as http:
        error = await refused(http, "http://outer.example/x", allow_private=False, resolve=names)
    assert isinstance(error, SendNotAllowed)
    assert seen == ["8.8.8.8"]


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://[::1", "gopher://x"])
async def test_a_redirect_to_no_web_address_is_refused(files: Files, http: Http, location: str) -> None:
    files.target = location
    assert isinstance(await refused(http, files.url + "/away"), SendNotAllowed)


async def test_the_bearer_stays_with_its_host(files: Files, http: Http) -> None:
    async with Files() as other:
        files.target = other.url + "/file"
        assert await fetched(http, files.url + "/away", headers=BEARER) == b"x" * 3000
        assert files.requests[0].headers["authorization"] == "Bearer file-token"
        assert "authorization" not in other.requests[0].headers
    files.target = "/file"
    await fetched(http, files.url + "/away", headers=BEARER)
    assert files.requests[-1].headers["authorization"] == "Bearer file-token"
    files.target = "/away"
    assert "redirects" in (await refused(http, files.url + "/away")).message


async def test_behind_a_proxy_the_name_is_the_proxys_to_resolve(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """C238: downloads pass the proxy too; what this machine knows to be private is refused all the same."""
    for name in ("HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", files.url)
    names = Names(inner_example=[["10.0.0.1"]])
    async with Http("https://platform.invalid") as http:
        assert await fetched(http, "http://files.example/file", allow_private=False, resolve=names) == b"x" * 3000
        error = await refused(http, "http://inner.example/file", allow_private=False, resolve=names)
    assert isinstance(error, SendNotAllowed)
    assert [request.headers["host"] for request in files.requests] == ["files.example"]


async def test_a_name_without_an_address_may_work_later() -> None:
    with pytest.raises(Transient):
        await Guard(resolve=Names()).pins("http://nowhere.example/")


@pytest.mark.parametrize(
    ("head", "name", "mime"),
    [
        (b"\x89PNG\r\n\x1a\n....", "photo.jpg", "image/png"),
        (b"\xff\xd8\xff\xe0", "", "image/jpeg"),
        (b"RIFF....WEBPVP8 ", "x", "image/webp"),
        (b"....ftypmp42", "clip.bin", "video/mp4"),
        (b"OggS", "voice.oga", "audio/ogg"),
        (b"PK\x03\x04..", "report.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        (b"PK\x03\x04..", "report.pdf", "application/zip"),
        (b"%PDF-1.7", "x.txt", "application/pdf"),
        (b"\n<!DOCTYPE html><script>", "photo.png", "text/html"),
        (b"a,b\n1,2\n", "data.csv", "text/csv"),
        (b'{"a": 1}', "data.json", "application/json"),
        (b"plain", "photo.png", "text/plain"),
        ("é".encode() * 256 + b"\xc3", "x", "text/plain"),
        (b"\x00\x01\x02", "photo.png", "application/octet-stream"),
        (b"\x00\x01\x02", "tune.mp3", "audio/mpeg"),
        (b"", "", "text/plain"),
    ],
)
def test_a_type_follows_from_the_bytes_before_the_name(head: bytes, name: str, mime: str) -> None:
    assert sniff(head, name) == mime


@given(st.text(max_size=300))
@example("../../.ssh/authorized_keys")
@example("x" * 400 + ".txt")
@example("é" * 300)
@example("x." + "y" * 300)
def test_a_name_never_leaves_its_folder(name: str) -> None:
    """C065."""
    folder = Path("/folder")
    safe = safe_name(name)
    assert (folder / safe).parent == folder
    assert safe not in (".", "..", "")
    assert len(safe.encode()) <= 200
    assert not any(ord(c) < 32 or c in "/\\\u202e" for c in safe)
    assert safe_name(safe) == safe


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("../../.ssh/authorized_keys", "authorized_keys"),
        ("..\\..\\win.ini", "win.ini"),
        ("a\u0000.png", "a.png"),
        ("CON", "file"),
        ("con.txt", "file"),
        ("..", "file"),
        ("x" * 400 + ".txt", "x" * 196 + ".txt"),
        ("rep\u202egnp.exe", "repgnp.exe"),
        ("x\r\nSet-Cookie: a=b.txt", "xSet-Cookie_ a=b.txt"),
        ("報告 – Q3.pdf", "報告 – Q3.pdf"),
    ],
)
def test_a_name_keeps_what_is_harmless(name: str, safe: str) -> None:
    """C065, C069."""
    assert safe_name(name) == safe
