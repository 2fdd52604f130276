"""A Docker registry on loopback: the read half of the registry protocol, for one image that this machine has.

Docker takes 127.0.0.0/8 for an insecure registry without being told, so `docker pull 127.0.0.1:PORT/name` works
where nothing outside can be reached. A blob is held back until `let_go` is set, so a test can look at a pull
that is under way.
"""

import gzip
import hashlib
import json
import tarfile
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from server import docker

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def saved(image):
    """Configuration and layers of a local image, as bytes."""
    with tempfile.NamedTemporaryFile(suffix=".tar") as f:
        docker("save", "-o", f.name, image)
        with tarfile.open(f.name) as tar:
            def read(name):
                return tar.extractfile(name).read()
            manifest = json.loads(read("manifest.json"))[0]
            return read(manifest["Config"]), [gzip.compress(read(x), 1, mtime=0) for x in manifest["Layers"]]


class Registry:
    def __init__(self, image, name):
        # A history of its own makes another image id: otherwise the engine has it already.
        config, layers = saved(image)
        config = json.loads(config)
        config["author"] = name
        config = json.dumps(config).encode()
        self.blobs = {digest(b): b for b in [config, *layers]}
        self.manifest = json.dumps({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "size": len(config), "digest": digest(config)},
            "layers": [{"mediaType": LAYER, "size": len(b), "digest": digest(b)} for b in layers],
        }).encode()
        self.name, self.pulls = name, 0
        self.let_go = threading.Event()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.image = f"127.0.0.1:{self.http.server_port}/{name}:latest"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def find(self, path):
        """(bytes, media type) of what lies under a path."""
        if path == "/v2/":
            return b"{}", "application/json"
        kind, _, reference = path.removeprefix(f"/v2/{self.name}/").partition("/")
        if kind == "manifests" and reference in ("latest", digest(self.manifest)):
            self.pulls += reference == "latest"
            return self.manifest, MANIFEST
        if kind == "blobs" and reference in self.blobs:
            self.let_go.wait(60)
            return self.blobs[reference], "application/octet-stream"
        return None, None

    def handler(self):
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self, with_body):
                data, media = registry.find(self.path)
                if data is None:
                    body = b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}'
                    self.send_response(404)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body if with_body else b"")
                    return
                self.send_response(200)
                self.send_header("Content-Type", media)
                self.send_header("Docker-Content-Digest", digest(data))
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if with_body:
                    self.wfile.write(data)

            def do_GET(self):
                self.answer(True)

            def do_HEAD(self):
                self.answer(False)

            def log_message(self, *_):
                pass

        return Handler

    def close(self):
        self.let_go.set()
        self.http.shutdown()
        self.http.server_close()
        docker("rmi", "-f", self.image, check=False)
