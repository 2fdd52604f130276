"""OAuth resource server (SMCP_OAUTH_ISSUER) against a real issuer on this machine, and that without one nothing changes."""

import base64
import datetime
import hashlib
import hmac
import ipaddress
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from server import BUILD, TOKEN, Server, children, clean_env, free_port, parallel, run, wait_for

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
METADATA = ("/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp")


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(n, size=None):
    return b64(n.to_bytes(size or (n.bit_length() + 7) // 8, "big"))


def public_jwk(kid, key, **more):
    p = key.public_key().public_numbers()
    if isinstance(key, rsa.RSAPrivateKey):
        j = {"kty": "RSA", "n": number(p.n), "e": number(p.e)}
    else:
        size = (key.curve.key_size + 7) // 8
        j = {"kty": "EC", "crv": {256: "P-256", 384: "P-384"}[key.curve.key_size], "x": number(p.x, size),
             "y": number(p.y, size)}
    return {"kid": kid, "use": "sig", **j, **more}


def new_rsa(bits=2048):
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


RSA, OTHER_RSA = new_rsa(), new_rsa()
P256, P384 = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP384R1())
KEYS = {"rsa": RSA, "p256": P256, "p384": P384}


class Issuer:
    """An authorization server: metadata and keys, which a test may bend; counts what is asked for."""

    def __init__(self, path="", openid=False, certificate=None):
        self.port, self.path, self.openid, self.certificate = free_port(), path, openid, certificate
        self.base = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"
        self.url = self.base + path
        self.jwks = {"keys": [public_jwk(kid, k) for kid, k in KEYS.items()]}
        self.metadata = {"issuer": self.url, "jwks_uri": self.base + "/keys"}
        self.special = {}  # path: function(handler)
        self.asked = []
        self.server = None
        self.up()

    def place(self):
        if self.openid:
            return f"{self.path}/.well-known/openid-configuration"
        return f"/.well-known/oauth-authorization-server{self.path}"

    def answer(self, h):
        self.asked.append(h.path)
        if h.path in self.special:
            return self.special[h.path](h)
        document = {self.place(): self.metadata, "/keys": self.jwks}.get(h.path)
        body = json.dumps(document if document is not None else {"error": "not found"}).encode()
        h.send_response(200 if document is not None else 404)
        h.send_header("Content-Type", "application/json")
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        h.wfile.write(body)

    def up(self):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(h):
                try:
                    self.answer(h)
                except OSError:
                    pass

            def log_message(h, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.server.daemon_threads = True
        if self.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def down(self):
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    def fetches(self):
        return self.asked.count("/keys")

    def claims(self, audience, **more):
        now = int(time.time())
        c = {"iss": self.url, "aud": audience, "sub": "u", "iat": now, "exp": now + 600, "scope": "sandbox:use mail"}
        c.update(more)
        return {k: v for k, v in c.items() if v is not None}


def sign(claims, alg="RS256", key=RSA, kid="rsa", **header):
    h = {"kid": kid, "typ": "at+jwt", **header}
    return jwt.encode(claims, key, alg, {k: v for k, v in h.items() if v is not None})


def by_hand(header, claims, signature):
    """A token of any header; signature(bytes) -> bytes."""
    head = b64(json.dumps(header).encode()) + "." + b64(json.dumps(claims).encode())
    return head + "." + b64(signature(head.encode()))


@pytest.fixture(scope="module")
def make_issuer():
    made = []

    def make(*arguments, **kw):
        made.append(Issuer(*arguments, **kw))
        return made[-1]

    yield make
    for i in made:
        i.down()


@pytest.fixture(scope="module")
def issuer(make_issuer):
    return make_issuer()


@pytest.fixture(scope="module")
def oauth(issuer):
    s = Server(SMCP_OAUTH_ISSUER=issuer.url, SMCP_OAUTH_SCOPES="sandbox:use", SMCP_ALLOWED_ORIGINS="https://app.example.org")
    try:
        s.start()
        yield s
    finally:
        s.stop()


def audience(server):
    return f"http://127.0.0.1:{server.port}/mcp"


def ask(server, token, **headers):
    return server.post(PING, headers, token=token)


def change_cache(server, **fields):
    """As if the last try (tried_ms) or the last fetch (fetched_ms) had been at another time."""
    path = server.run_dir / "oauth-keys.json"
    cache = json.loads(path.read_text())
    cache.update(fields)
    new = path.with_name("test-keys")
    new.touch(mode=0o600)
    new.write_text(json.dumps(cache))
    new.rename(path)


# ---- tokens ----

@pytest.mark.parametrize("alg,kid", [("RS256", "rsa"), ("PS256", "rsa"), ("ES256", "p256"), ("ES384", "p384")])
def test_good_tokens(oauth, issuer, alg, kid):
    token = sign(issuer.claims(audience(oauth)), alg, KEYS[kid], kid)
    for _ in range(3):
        assert ask(oauth, token).status == 200
    assert ask(oauth, None, Authorization=f"bearer  {token} ").status == 200


@pytest.mark.parametrize("change", [
    {"aud": ["https://other.example", "AUDIENCE"]}, {"scope": None, "scp": ["sandbox:use"]},
    {"scope": "mail", "scp": "sandbox:use"}, {"scope": ["sandbox:use"]},
    {"nbf": 0}, {"exp": "SOON"}, {"nbf": "NEARLY"}, {"jti": "\u00e9", "nested": {"a": [1, None]}},
])
def test_forms_of_good_claims(oauth, issuer, change):
    values = {"SOON": time.time() - 30, "NEARLY": time.time() + 30}
    c = issuer.claims(audience(oauth), **{k: values.get(v, v) if isinstance(v, str) else v for k, v in change.items()})
    if isinstance(c["aud"], list):
        c["aud"][1] = audience(oauth)
    assert ask(oauth, sign(c)).status == 200


@pytest.mark.parametrize("header", [{"typ": "JWT"}, {"typ": None}, {"typ": "application/AT+jwt"}])
def test_types_of_tokens(oauth, issuer, header):
    assert ask(oauth, sign(issuer.claims(audience(oauth)), **header)).status == 200


@pytest.mark.parametrize("change,why", [
    ({"iss": "https://evil.example"}, "issuer"), ({"iss": "SLASH"}, "issuer"), ({"iss": None}, "issuer"), ({"iss": 1}, "issuer"),
    ({"aud": "https://other.example/mcp"}, "audience"), ({"aud": "SLASH"}, "audience"), ({"aud": None}, "audience"),
    ({"aud": []}, "audience"), ({"aud": {"x": 1}}, "audience"),
    ({"exp": 1}, "expired"), ({"exp": -90}, "expired"), ({"exp": None}, "expires"), ({"exp": "never"}, "expires"),
    ({"nbf": 90}, "not valid yet"), ({"nbf": "x"}, "nbf"),
])
def test_bad_claims(oauth, issuer, change, why):
    c = issuer.claims(audience(oauth))
    for k, v in change.items():
        c[k] = c[k] + "/" if v == "SLASH" else int(time.time()) + v if k in ("exp", "nbf") and v in (-90, 90) else v
    c = {k: v for k, v in c.items() if v is not None}
    # By hand: the library has opinions of its own about claims.
    token = by_hand({"alg": "RS256", "kid": "rsa"}, c, signer(RSA))
    r = ask(oauth, token)
    assert r.status == 401 and why in r.body.decode(), r.body
    assert 'error="invalid_token"' in r.headers["WWW-Authenticate"]


def signer(key):
    return lambda data: key.sign(data, padding.PKCS1v15(), hashes.SHA256())


def hs256(secret):
    return lambda data: hmac.new(secret, data, hashlib.sha256).digest()


def test_forged_tokens(oauth, issuer):
    c = issuer.claims(audience(oauth))
    good = sign(c)
    head, body, signature = good.split(".")
    pem = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    der = RSA.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    jwk = public_jwk("rsa", OTHER_RSA)
    es = sign(c, "ES256", P256, "p256").split(".")
    two = '{"alg":"none","alg":"RS256","kid":"rsa"}'
    flipped = ("B" if signature[0] == "A" else "A") + signature[1:]
    forged = {
        "another key": sign(c, key=OTHER_RSA),
        "one bit": f"{head}.{body}.{flipped}",
        "other claims": f"{head}.{b64(json.dumps({**c, 'sub': 'root'}).encode())}.{signature}",
        "none": by_hand({"alg": "none", "kid": "rsa"}, c, lambda d: b""),
        "None": by_hand({"alg": "None", "kid": "rsa"}, c, lambda d: b"x"),
        "none with the signature": f"{b64(json.dumps({'alg': 'none', 'kid': 'rsa'}).encode())}.{body}.{signature}",
        "no signature": f"{head}.{body}.",
        "HS256 with the PEM": by_hand({"alg": "HS256", "kid": "rsa"}, c, hs256(pem)),
        "HS256 with the DER": by_hand({"alg": "HS256", "kid": "rsa"}, c, hs256(der)),
        "HS256 with the modulus": by_hand({"alg": "HS256", "kid": "rsa"}, c,
                                          hs256(RSA.public_key().public_numbers().n.to_bytes(256, "big"))),
        "RS512": sign(c, "RS512"),
        "its own key": by_hand({"alg": "RS256", "kid": "rsa", "jwk": jwk}, c, signer(OTHER_RSA)),
        "its own address": by_hand({"alg": "RS256", "kid": "rsa", "jku": "http://127.0.0.1:1/"}, c, signer(OTHER_RSA)),
        "an algorithm of another key": sign(c, "ES256", P256, "rsa"),
        "another curve": sign(c, "ES384", P384, "p256"),
        "zero r and s": f"{es[0]}.{es[1]}.{b64(bytes(64))}",
        "short r and s": f"{es[0]}.{es[1]}.{b64(bytes(2))}",
        "crit": sign(c, crit=["exp"]),
        "another type": sign(c, typ="logout+jwt"),
        "no algorithm": by_hand({"kid": "rsa"}, c, signer(RSA)),
        "two algorithms": f"{b64(two.encode())}.{body}.{signature}",
        "padding": good + "=",
        "four parts": good + ".x",
        "two parts": f"{head}.{body}",
        "dots": "..",
        "encrypted": "a.b.c.d.e",
        "list of claims": by_hand({"alg": "RS256", "kid": "rsa"}, [c], signer(RSA)),
        "large": sign({**c, "pad": "x" * 7000}),
    }
    for name, token in forged.items():
        r = ask(oauth, token)
        assert r.status in ((401, 431, 400) if name == "large" else (401,)), (name, r)
    assert ask(oauth, good).status == 200
    assert not any(p not in (issuer.place(), "/keys") for p in issuer.asked), "it asks for nothing that a token names"


def test_a_token_without_key_id(oauth, issuer):
    """Only where one key alone fits the algorithm."""
    assert ask(oauth, sign(issuer.claims(audience(oauth)), "ES256", P256, None)).status == 200
    assert ask(oauth, sign(issuer.claims(audience(oauth)), "RS256", RSA, None)).status == 200


def test_the_token_of_the_server_still_works(oauth):
    assert ask(oauth, TOKEN).status == 200
    assert ask(oauth, TOKEN + "x").status == 401


def test_no_token_in_the_query(oauth, issuer):
    token = sign(issuer.claims(audience(oauth)))
    r = oauth.http("POST", f"/mcp?access_token={token}", json.dumps(PING), {"Content-Type": "application/json"}, token=None)
    assert r.status == 401


def test_no_token_in_the_log(oauth, issuer):
    token = sign(issuer.claims(audience(oauth)))
    assert ask(oauth, token).status == 200
    assert token.split(".")[2] not in oauth.log("responder") and token.split(".")[1] not in oauth.log("responder")


# ---- what clients are told ----

def test_metadata(oauth, issuer):
    for path in METADATA:
        r = oauth.http("GET", path, token=None)
        assert r.status == 200 and r.headers["Content-Type"] == "application/json"
        assert json.loads(r.body) == {
            "resource": audience(oauth), "authorization_servers": [issuer.url], "scopes_supported": ["sandbox:use"],
            "bearer_methods_supported": ["header"], "resource_name": "sandbox-mcp"}
        assert oauth.http("HEAD", path, token=None).status == 200
        assert oauth.http("POST", path, "{}", token=None).status == 405
    for path in ("/.well-known/oauth-protected-resource/", "/.well-known/oauth-protected-resource/x",
                 "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"):
        assert oauth.http("GET", path).status == 404


@pytest.mark.parametrize("origin", ["http://localhost:6274", "https://app.example.org", "https://anybody.example"])
def test_metadata_for_browsers(oauth, origin):
    for path in METADATA:
        r = oauth.http("GET", path, headers={"Origin": origin}, token=None)
        assert r.status == 200 and r.headers["Access-Control-Allow-Origin"] in ("*", origin)
        r = oauth.http("OPTIONS", path, token=None, headers={
            "Origin": origin, "Access-Control-Request-Method": "GET",
            "Access-Control-Request-Headers": "mcp-protocol-version"})
        assert r.status == 204 and r.headers["Access-Control-Allow-Origin"] in ("*", origin)
        assert "GET" in r.headers["Access-Control-Allow-Methods"]
        assert "mcp-protocol-version" in r.headers["Access-Control-Allow-Headers"]


def test_challenges(oauth, issuer):
    where = f'resource_metadata="http://127.0.0.1:{oauth.port}/.well-known/oauth-protected-resource/mcp"'
    for method in ("POST", "GET", "DELETE"):
        r = oauth.http(method, "/mcp", token=None)
        assert r.status == 401
        assert r.headers["WWW-Authenticate"] == f'Bearer scope="sandbox:use", {where}'
    r = ask(oauth, "wrong")
    assert r.status == 401
    assert r.headers["WWW-Authenticate"] == f'Bearer error="invalid_token", scope="sandbox:use", {where}'
    assert json.loads(r.body)["error"]["message"]
    for scopes in ({"scope": "mail"}, {"scope": ""}, {"scope": None}, {"scope": "sandbox:user sandbox:us"}, {"scope": 1}):
        r = ask(oauth, sign(issuer.claims(audience(oauth), **scopes)))
        assert r.status == 403
        assert r.headers["WWW-Authenticate"] == f'Bearer error="insufficient_scope", scope="sandbox:use", {where}'
    r = ask(oauth, None, Origin="https://app.example.org")
    assert r.status == 401 and "WWW-Authenticate" in r.headers["Access-Control-Expose-Headers"]
    r = ask(oauth, sign(issuer.claims(audience(oauth), scope="mail"), key=OTHER_RSA))
    assert r.status == 401, "a token that is not the issuer's learns nothing about scopes"


def test_without_an_issuer_nothing_changes(server, issuer):
    for path in METADATA + ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"):
        for method in ("GET", "OPTIONS", "POST"):
            r = server.http(method, path, headers={"Origin": "http://localhost"}, token=None)
            assert r.status == 404 and "Access-Control-Allow-Origin" not in r.headers
    r = server.post(PING, token=None)
    assert r.status == 401 and r.headers["WWW-Authenticate"] == 'Bearer realm="mcp"'
    r = server.post(PING, token=sign(issuer.claims(audience(server))))
    assert r.status == 401 and r.headers["WWW-Authenticate"] == 'Bearer realm="mcp", error="invalid_token"'
    assert not list(server.run_dir.glob("oauth*"))
    for pid in server.worker_pids():
        with open(f"/proc/{pid}/maps") as f:
            assert "libcurl" not in f.read()


# ---- keys ----

def test_made_up_key_ids_do_not_reach_the_issuer(oauth, issuer):
    c = issuer.claims(audience(oauth))
    assert ask(oauth, sign(c)).status == 200
    change_cache(oauth, tried_ms=0)
    before = issuer.fetches()
    answers = parallel(16, lambda i: [ask(oauth, sign(c, kid=f"made-up-{i}-{n}")).status for n in range(5)])
    assert {s for a in answers for s in a} == {401}
    assert issuer.fetches() == before + 1
    assert ask(oauth, sign(c)).status == 200
    change_cache(oauth, tried_ms=0)
    assert ask(oauth, sign({**c, "iss": "https://evil.example"}, kid="new")).status == 401
    assert ask(oauth, sign({**c, "exp": 1}, kid="new")).status == 401
    assert issuer.fetches() == before + 1, "a token that is refused anyway causes no fetch"


def test_rotation(oauth, issuer):
    new = new_rsa()
    c = issuer.claims(audience(oauth))
    issuer.jwks["keys"].append(public_jwk("new", new))
    try:
        change_cache(oauth, tried_ms=0)
        assert parallel(8, lambda i: ask(oauth, sign(c, key=new, kid="new")).status) == [200] * 8
        assert ask(oauth, sign(c)).status == 200, "the old key still counts"
        issuer.jwks["keys"] = [k for k in issuer.jwks["keys"] if k["kid"] != "rsa"]
        assert ask(oauth, sign(c)).status == 200
        change_cache(oauth, fetched_ms=1, tried_ms=1)
        assert ask(oauth, sign(c, key=new, kid="new")).status == 200
        assert ask(oauth, sign(c)).status == 401, "the issuer took the key back"
    finally:
        issuer.jwks = {"keys": [public_jwk(kid, k) for kid, k in KEYS.items()]}
        change_cache(oauth, tried_ms=0)
        assert ask(oauth, sign(c)).status == 200


def test_old_keys_stay_while_the_issuer_is_down(oauth, issuer):
    c = issuer.claims(audience(oauth))
    assert ask(oauth, sign(c)).status == 200
    issuer.down()
    try:
        change_cache(oauth, fetched_ms=1, tried_ms=1)
        for kid in KEYS:
            alg = {"rsa": "RS256", "p256": "ES256", "p384": "ES384"}[kid]
            assert ask(oauth, sign(c, alg, KEYS[kid], kid)).status == 200
        change_cache(oauth, tried_ms=0)
        assert ask(oauth, sign(c, kid="new")).status == 401
        assert json.loads((oauth.run_dir / "oauth-keys.json").read_text())["set"]["keys"]
        assert ask(oauth, TOKEN).status == 200
    finally:
        issuer.up()
        change_cache(oauth, tried_ms=0)
    assert ask(oauth, sign(c)).status == 200


def test_workers_stay_small_and_leave_nothing(oauth, issuer):
    for pid in oauth.worker_pids():
        with open(f"/proc/{pid}/maps") as f:
            assert "libcurl" not in f.read()
    assert ((oauth.run_dir / "oauth-keys.json").stat().st_mode & 0o777) == 0o600
    wait_for(lambda: not [c for p in oauth.worker_pids() for c in children(p)], 5, "no fetching child is left")


def test_first_requests_fetch_once(make_server, make_issuer):
    """Also: a path in the issuer's name, its metadata at the place of OpenID, a slash at its end."""
    i = make_issuer("/realms/x", openid=True)
    s = make_server(SMCP_OAUTH_ISSUER=i.url, SMCP_OAUTH_AUDIENCE="api://sandbox", SMCP_WORKERS_MIN=8)
    c = i.claims("api://sandbox", scope=None)
    assert parallel(16, lambda n: ask(s, sign(c)).status) == [200] * 16
    assert i.fetches() == 1
    assert i.asked[0] == "/.well-known/oauth-authorization-server/realms/x"
    assert json.loads(s.http("GET", METADATA[0]).body)["resource"] == audience(s)
    r = s.post(PING, token=None)
    assert "scope=" not in r.headers["WWW-Authenticate"]
    assert "scopes_supported" not in json.loads(s.http("GET", METADATA[0]).body)
    assert ask(s, sign(i.claims(audience(s)))).status == 401


def test_no_keys_yet(make_server, make_issuer):
    i = make_issuer()
    i.down()
    s = make_server(SMCP_OAUTH_ISSUER=i.url)
    token = sign(i.claims(audience(s)))
    r = ask(s, token)
    assert r.status == 503 and int(r.headers["Retry-After"]) > 0, "not 401: the token may well be good"
    assert ask(s, TOKEN).status == 200
    i.up()
    assert ask(s, token).status == 503 and not i.asked, "not before 30 s"
    change_cache(s, tried_ms=0)
    assert ask(s, token).status == 200


def redirect(to):
    def answer(h):
        h.send_response(302)
        h.send_header("Location", to)
        h.send_header("Content-Length", "0")
        h.end_headers()
    return answer


def raw(body, status=200):
    def answer(h):
        h.send_response(status)
        h.send_header("Content-Type", "application/json")
        h.end_headers()
        h.wfile.write(body)
    return answer


def silence(h):
    time.sleep(20)


def trickle(h):
    h.send_response(200)
    h.end_headers()
    for _ in range(100):
        h.wfile.write(b" ")
        time.sleep(0.2)


def test_bad_issuers(make_server, make_issuer):
    """What an issuer's answers must not do: replace its name, lead elsewhere, be endless, bring weak keys."""
    i = make_issuer()
    elsewhere = make_issuer()
    s = make_server(SMCP_OAUTH_ISSUER=i.url)
    token = sign(i.claims(audience(s)))
    weak = new_rsa(1024)
    good = dict(i.metadata)
    cases = [
        ("another issuer", {"metadata": {**good, "issuer": elsewhere.url}}, token, "another issuer"),
        ("a slash more", {"metadata": {**good, "issuer": i.url + "/"}}, token, "another issuer"),
        ("no jwks_uri", {"metadata": {"issuer": i.url}}, token, "no 'jwks_uri'"),
        ("keys from a file", {"metadata": {**good, "jwks_uri": "file:///etc/passwd"}}, token, "not an https address"),
        ("keys over http from afar", {"metadata": {**good, "jwks_uri": "http://192.0.2.1/keys"}}, token, "not an https address"),
        ("redirected metadata", {"special": {i.place(): redirect(elsewhere.url + elsewhere.place())}}, token, "no metadata"),
        ("redirected keys", {"special": {"/keys": redirect(elsewhere.url + "/keys")}}, token, "HTTP status 302"),
        ("not JSON", {"special": {"/keys": raw(b"<html>")}}, token, "not well-formed"),
        ("an error", {"special": {"/keys": raw(json.dumps(i.jwks).encode(), 500)}}, token, "HTTP status 500"),
        ("endless keys", {"special": {"/keys": raw(b'{"keys":[' + b" " * 400000)}}, token, "more than 262144 bytes"),
        ("silence", {"special": {"/keys": silence}}, token, "Timeout"),
        ("a trickle", {"special": {"/keys": trickle}}, token, "Timeout"),
        ("a weak key", {"jwks": {"keys": [public_jwk("w", weak)]}}, sign(i.claims(audience(s)), key=weak, kid="w"), "no usable"),
        ("a shared secret", {"jwks": {"keys": [{"kty": "oct", "kid": "s", "k": b64(b"k" * 32)}]}},
         by_hand({"alg": "HS256", "kid": "s"}, i.claims(audience(s)), hs256(b"k" * 32)), None),
        ("a key for encryption", {"jwks": {"keys": [public_jwk("rsa", RSA, use="enc")]}}, token, "no usable"),
        ("a key of another algorithm", {"jwks": {"keys": [public_jwk("rsa", RSA, alg="PS256"), public_jwk("x", P256)]}}, token, "were fetched"),
    ]
    keys = i.jwks
    for name, change, t, why in cases:
        i.metadata, i.special, i.jwks = good, {}, keys
        for k, v in change.items():
            setattr(i, k, v)
        if (s.run_dir / "oauth-keys.json").exists():
            change_cache(s, tried_ms=0)
        start, logged = time.monotonic(), len(s.log("responder"))
        r = ask(s, t)
        assert r.status in (401, 503), (name, r)
        assert time.monotonic() - start < 8, name
        said = s.log("responder")[logged:]
        assert why is None or why in said, (name, said)
        assert ask(s, TOKEN).status == 200
    assert not elsewhere.asked
    i.metadata, i.special, i.jwks = good, {}, keys
    change_cache(s, tried_ms=0)
    assert ask(s, token).status == 200


# ---- TLS ----

def certificate(path, address):
    """A file with key and certificate, its own authority, for this address."""
    key, now = new_rsa(), datetime.datetime.utcnow()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test issuer")])
    c = (x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
         .serial_number(1).not_valid_before(now - datetime.timedelta(1)).not_valid_after(now + datetime.timedelta(1))
         .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), False)
         .add_extension(x509.BasicConstraints(True, None), True).sign(key, hashes.SHA256()))
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + c.public_bytes(Encoding.PEM))
    return path


class TrustingServer(Server):
    """Its responder sees `bundle` in the place of the system's list of authorities."""
    bundle = None

    def spawn(self, name, argv, **env):
        if name == "responder" and self.bundle:
            script = 'mount --bind "$0" /etc/ssl/certs/ca-certificates.crt && exec "$@"'
            argv = ["unshare", "--mount", "sh", "-c", script, self.bundle, *argv]
        super().spawn(name, argv, **env)


@pytest.mark.parametrize("address,trusted,why", [
    ("127.0.0.1", True, None), ("127.0.0.1", False, "certificate"), ("127.0.0.2", True, "certificate"),
])
def test_tls(make_issuer, tmp_path, address, trusted, why):
    i = make_issuer(certificate=certificate(tmp_path / "pem", address))
    s = TrustingServer(SMCP_OAUTH_ISSUER=i.url)
    s.bundle = tmp_path / "pem" if trusted else None
    try:
        s.start()
        r = ask(s, sign(i.claims(audience(s))))
        assert r.status == (503 if why else 200), s.log("responder")
        assert not why or why in s.log("responder")
        i.metadata["jwks_uri"] = i.metadata["jwks_uri"].replace("https:", "http:")
        change_cache(s, tried_ms=0)
        assert ask(s, sign(i.claims(audience(s)), kid="new")).status == (503 if why else 401)
        assert why or "'jwks_uri' is not an https address" in s.log("responder")
    finally:
        s.stop()


# ---- settings ----

@pytest.mark.parametrize("settings,name", [
    ({"SMCP_OAUTH_ISSUER": "http://login.example.org"}, "SMCP_OAUTH_ISSUER"),
    ({"SMCP_OAUTH_ISSUER": "login.example.org"}, "SMCP_OAUTH_ISSUER"),
    ({"SMCP_OAUTH_ISSUER": "https://"}, "SMCP_OAUTH_ISSUER"),
    ({"SMCP_OAUTH_ISSUER": "https://a.example/?x=1"}, "SMCP_OAUTH_ISSUER"),
    ({"SMCP_OAUTH_ISSUER": "https://a.example/#x"}, "SMCP_OAUTH_ISSUER"),
    ({"SMCP_OAUTH_ISSUER": "https://user@a.example"}, "SMCP_OAUTH_ISSUER"),
    ({"SMCP_OAUTH_ISSUER": "http://127.0.0.1.example.org"}, "SMCP_OAUTH_ISSUER"),
    ({"SMCP_OAUTH_ISSUER": 'https://a.example/"x'}, "SMCP_OAUTH_ISSUER"),
    ({"SMCP_OAUTH_AUDIENCE": "two words"}, "SMCP_OAUTH_AUDIENCE"),
    ({"SMCP_OAUTH_SCOPES": 'a"b'}, "SMCP_OAUTH_SCOPES"),
    ({"SMCP_OAUTH_SCOPES": "a\\b"}, "SMCP_OAUTH_SCOPES"),
    ({"SMCP_OAUTH_ISSUER": "https://a.example", "SMCP_PUBLIC_BASE_URL": 'https://b.example/"'}, "SMCP_PUBLIC_BASE_URL"),
])
def test_wrong_settings(settings, name):
    p = run(BUILD / "sandbox-mcp", "--check-config", check=False, env=clean_env(**settings))
    assert p.returncode == 1
    assert name in p.stderr and settings[name] in p.stderr and "it takes" in p.stderr and len(p.stderr.splitlines()) <= 3


@pytest.mark.parametrize("issuer", [
    "https://login.example.org", "https://login.example.org/", "https://login.example.org:8443/tenant/v2.0",
    "http://localhost:8080/realms/x", "http://[::1]:1", "http://127.0.0.1",
])
def test_right_settings(issuer):
    p = run(BUILD / "sandbox-mcp", "--check-config", env=clean_env(SMCP_OAUTH_ISSUER=issuer, SMCP_OAUTH_SCOPES="a:x b"))
    assert f"SMCP_OAUTH_ISSUER={issuer}\n" in p.stdout and "SMCP_OAUTH_SCOPES=a:x b\n" in p.stdout
