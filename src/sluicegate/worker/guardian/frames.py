"""What worker and guardian say to each other: frames of fields separated by NUL, which no argument or variable holds.

start KEY TERM_AT KILL_AT COUNT ARGUMENT… NAME=VALUE…    with the three standard streams as descriptors
lease KEY TERM_AT KILL_AT       SIGTERM and SIGKILL at these monotonic seconds, 0 for never
kill KEY GRACE                  SIGTERM now, SIGKILL after so many seconds
end KEY                         SIGKILL what is left of it, then forget it

started KEY PID · refused KEY fork|exec ERRNO · exited KEY code|signal NUMBER CAUSE · ended KEY
"""

import struct

_HEADER = struct.Struct("!I")


def pack(*fields: bytes) -> bytes:
    """One frame; no field may hold a NUL."""
    body = b"\0".join(fields)
    return _HEADER.pack(len(body)) + body


class Frames:
    """Puts frames together again from whatever pieces they arrive in."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[list[bytes]]:
        """The fields of every frame that ``data`` completes."""
        self._buffer += data
        complete = []
        while len(self._buffer) >= _HEADER.size:
            end = _HEADER.size + _HEADER.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                break
            complete.append(bytes(self._buffer[_HEADER.size : end]).split(b"\0"))
            del self._buffer[:end]
        return complete
