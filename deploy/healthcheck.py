"""Exit with status 0 if the server in this container answers: curl is not in the image."""

import os
import socket
import ssl
import urllib.request

_NAMES = ("CHARIOTEER_HTTP_PORT", "PORT", "UVICORN_PORT")
_SECONDS = 4

# The proxy that HTTP_PROXY names cannot reach a server in this container.
os.environ["no_proxy"] = "127.0.0.1"
port = next(filter(None, map(os.environ.get, _NAMES)), "8080")
if not os.environ.get("CHARIOTEER_TLS_CERT"):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=_SECONDS):
        pass
else:
    # The certificate has the public name, and only a process in this container could impersonate the server.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if os.environ.get("CHARIOTEER_TLS_CLIENT_CA"):
        # The container has no client certificate, so a TLS handshake must suffice.
        with socket.create_connection(("127.0.0.1", int(port)), timeout=_SECONDS) as connection:
            context.wrap_socket(connection).close()
    else:
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/health", timeout=_SECONDS, context=context):
            pass
