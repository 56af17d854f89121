"""A command's output: read as fast as it comes, however much it is, and only its end kept."""

from __future__ import annotations

import asyncio
import contextlib
import os

TAIL_BYTES = 16_384


class Tail(asyncio.Protocol):
    """Keeps the last ``TAIL_BYTES`` bytes of one stream, and how many there were in all."""

    def __init__(self) -> None:
        self.size = 0
        self._kept = bytearray()
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.BaseTransport | None = None

    @classmethod
    async def open(cls) -> tuple[Tail, int]:
        """A tail, and the descriptor to write to, which the caller closes. Raises OSError if there are none left."""
        readable, writable = os.pipe()
        try:
            _, tail = await asyncio.get_running_loop().connect_read_pipe(cls, os.fdopen(readable, "rb", buffering=0))
        except BaseException:
            os.close(writable)
            raise
        return tail, writable

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.size += len(data)
        self._kept += data[-TAIL_BYTES:]
        if len(self._kept) > 4 * TAIL_BYTES:
            del self._kept[:-TAIL_BYTES]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the name is the protocol's
        if not self._closed.done():
            self._closed.set_result(None)

    async def closed(self) -> None:
        """Return once everybody who could write to the stream has closed it."""
        await asyncio.shield(self._closed)

    def close(self) -> None:
        """Stop reading."""
        if self._transport is not None:
            self._transport.close()

    def end(self, most: int = TAIL_BYTES) -> tuple[str, int]:
        """The last ``most`` bytes as text, and how many bytes were left out before them.

        Bytes that are not UTF-8 become replacement characters.
        """
        kept = bytes(self._kept[-min(most, TAIL_BYTES) :])
        if len(kept) < self.size:
            # Where the cut went through a character, its rest is left out.
            start = next((index for index, byte in enumerate(kept[:4]) if byte & 0xC0 != 0x80), 0)
            kept = kept[start:]
        return kept.decode("utf-8", "replace"), self.size - len(kept)


async def wait_closed(tails: tuple[Tail, ...], seconds: float) -> None:
    """Return once every stream has been read to its end, and after ``seconds`` in any case."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            for tail in tails:
                await tail.closed()
