"""A door in front of the real Docker engine that speaks another range of API versions, and can be shut.

What an engine of another age does with a version is all that is pretended: it says its own in `Api-Version`, and
refuses requests below its minimum with 400, as engines do. Everything else is the real engine's answer.
"""

import http.client
import os
import re
import socket
import socketserver
import threading
from http.server import BaseHTTPRequestHandler

REAL = os.environ.get("SMCP_DOCKER_SOCKET", "/var/run/docker.sock")


class _Real(http.client.HTTPConnection):
    def __init__(self, version):
        super().__init__("docker", timeout=60)
        self.version = version

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(REAL)


def real_version():
    connection = _Real(None)
    connection.request("GET", "/_ping")
    response = connection.getresponse()
    response.read()
    return response.headers["Api-Version"]


class Engine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, path, newest="1.45", oldest="1.44"):
        self.path, self.newest, self.oldest = path, newest, oldest
        self.real, self.asked, self.connections = real_version(), set(), []
        super().__init__(str(path), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def get_request(self):
        connection, address = super().get_request()
        self.connections.append(connection)
        return connection, address

    def close(self):
        """As an engine that ends: also the connections that are kept open break."""
        if not os.path.exists(self.path):
            return
        self.shutdown()
        self.server_close()
        os.unlink(self.path)
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return "unix"

    def log_message(self, *_):
        pass

    def answer(self, status, headers, body):
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "api-version", "connection", "date", "server"):
                self.send_header(name, value)
        self.send_header("Api-Version", self.server.newest)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = re.match(r"/v(\d+\.\d+)(/.*)", self.path)
        path = self.path
        if found:
            version, path = found.groups()
            self.server.asked.add(version)
            number = [int(n) for n in version.split(".")]
            if number < [int(n) for n in self.server.oldest.split(".")]:
                message = f"client version {version} is too old. Minimum supported API version is {self.server.oldest}"
                return self.answer(400, [("Content-Type", "application/json")], b'{"message":"%s"}' % message.encode())
            path = f"/v{self.server.real}{path}"
        real = _Real(self.server.real)
        real.request(self.command, path, body or None, {"Content-Type": "application/json"})
        response = real.getresponse()
        self.answer(response.status, response.getheaders(), response.read())

    do_GET = do_POST = do_DELETE = handle_any
