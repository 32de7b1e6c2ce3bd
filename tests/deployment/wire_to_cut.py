"""A TCP connection that leads over a test, which may cut it."""

import socket
import threading
from contextlib import suppress


class WireToCut:
    """Passes on what it gets, both ways, until it is cut.

    Parameters
    ----------
    target : str
        Host and port of the server behind it.

    Attributes
    ----------
    address : str
        Host and port to connect to instead.
    """

    def __init__(self, target: str) -> None:
        self.move(target)
        self._whole = threading.Event()
        self._whole.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.passed = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def move(self, target: str) -> None:
        """Lead to another server from the next connection on."""
        host, _, port = target.partition(":")
        self._target = (host, int(port))

    def cut(self) -> None:
        """Let nothing through any more; what is sent waits, as on a network that loses it."""
        self._whole.clear()

    def mend(self) -> None:
        """Let everything through again, what has waited first."""
        self._whole.set()

    def reset(self) -> None:
        """Break the connections that there are, as a router does that forgets them."""
        for end in self._sockets:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._sockets = []

    def close(self) -> None:
        """Take the wire away."""
        self._listener.close()
        self.mend()
        self.reset()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            self._whole.wait()
            try:
                far = socket.create_connection(self._target, timeout=5.0)
            except OSError:
                near.close()  # the server is away
                continue
            far.settimeout(None)
            self._sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self._whole.wait()
                sink.sendall(data)
                self.passed += len(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
