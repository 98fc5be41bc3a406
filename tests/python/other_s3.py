"""The suite of the door to S3 against a server that shares nothing with the one of the other tests.

Starts moto's server on a port of loopback, makes a bucket in it, and runs the suite of `trefoil-s3` on that.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

DEADLINE_S = 60
BUCKET = "backups"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_bucket(endpoint, server):
    """Once the server answers; it wants requests signed in form only."""
    signed = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
    deadline = time.monotonic() + DEADLINE_S
    while True:
        request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT", headers={"Authorization": signed})
        try:
            with urllib.request.urlopen(request, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError) as error:
            if server.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the server does not serve: {error}")
            time.sleep(0.1)


def main():
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        make_bucket(endpoint, server)
        environment = os.environ | {
            "TREFOIL_S3_ENDPOINT": endpoint,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }
        # The same shape of command as that of all tests, so that nothing is built anew.
        command = ["cargo", "test", "--workspace", "--locked", "--lib", "another_s3_behaves"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        passed = "test tests::another_s3_behaves ... ok" in done.stdout
        if done.returncode != 0 or not passed:
            sys.exit(f"the suite failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
        print("another S3: the suite passed")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
