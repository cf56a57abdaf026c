"""Connections to the site: those whose requests come too slowly are closed."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS = 15.0
"""How long a request may take to arrive; one of this site is a kilobyte."""


class TimedProtocol(H11Protocol):
    """HTTP of uvicorn, which alone waits for the rest of a request for ever."""

    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock of the first request."""
        super().connection_made(transport)
        self._time_request()

    def data_received(self, data: bytes) -> None:
        """Take in a part of a request."""
        super().data_received(data)
        self._time_request()

    def _time_request(self) -> None:
        """Run the clock unless a whole request is being answered; more bytes do not set it back."""
        is_whole = self.cycle and not self.cycle.response_complete and not self.cycle.more_body
        if self._clock is None and not is_whole:
            self._clock = self.loop.call_later(SECONDS, self.transport.close)
        elif self._clock is not None and is_whole:
            self._clock.cancel()
            self._clock = None
