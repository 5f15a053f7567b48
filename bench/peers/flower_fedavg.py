"""Seconds of a FedAvg round of Flower with VALUES fp32 values among a SuperLink and 4 SuperNodes on loopback, as JSON.
Unencrypted, without evaluation."""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

PEERS = 4
HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.dirname(os.path.abspath(sys.executable))


def free_ports(count: int) -> list:
    held = [socket.socket() for _ in range(count)]
    for s in held:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


def wait_for(port: int, limit: float) -> None:
    end = time.monotonic() + limit
    while time.monotonic() < end:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    sys.exit(f"nothing listens on port {port}")


def main() -> None:
    values, rounds = int(sys.argv[1]), int(sys.argv[2])
    ports = free_ports(PEERS + 1)
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, FLWR_HOME=folder, FLWR_TELEMETRY_ENABLED="0",
                           PATH=PROGRAMS + os.pathsep + os.environ["PATH"])
        with open(os.path.join(folder, "config.toml"), "w") as config:
            config.write(f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{ports[0]}"\n'
                         "insecure = true\n")
        log = open(os.path.join(folder, "log"), "w+")
        started = []

        def start(program: str, *arguments: str) -> None:
            started.append(subprocess.Popen([os.path.join(PROGRAMS, program), "--insecure", *arguments], stdout=log,
                                            stderr=log, env=environment, start_new_session=True))

        try:
            start("flower-superlink", "--port", str(ports[0]), "--disable-runtime-dependency-installation")
            wait_for(ports[0], 60)
            for port in ports[1:]:
                start("flower-supernode", "--superlink", f"127.0.0.1:{ports[0]}", "--port", str(port))
            out = os.path.join(folder, "seconds.json")
            settings = f'values={values} rounds={rounds} peers={PEERS} seconds="{out}"'
            subprocess.run([os.path.join(PROGRAMS, "flwr"), "run", os.path.join(HERE, "flower_app"), "here", "--run-config",
                            settings], stdout=log, stderr=log, env=environment, check=False, timeout=120)
            end = time.monotonic() + 60 + 40 * rounds
            while not os.path.exists(out) and time.monotonic() < end:
                time.sleep(0.5)
            if not os.path.exists(out):
                log.seek(0)
                sys.exit(log.read()[-2000:])
            time.sleep(0.5)
            with open(out) as seconds:
                print(json.dumps(json.load(seconds)))
        finally:
            for process in reversed(started):
                os.killpg(process.pid, signal.SIGTERM)
            for process in started:
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
