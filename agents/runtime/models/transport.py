"""One HTTP attempt through the ``openai`` client, bounded in time and size and cancellable from outside.

The client runs in a background event loop, so that a thread which waits for an answer can leave at any moment: the
deadline and the cancel event are watched by the waiting thread, whatever the connection does.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai

from orienteer.agents.runtime.models.text import Scrubber, shorten
from orienteer.errors import Interrupted

#: Seconds between two looks at the cancel event.
TICK = 0.1
#: Seconds for name look-up, connection and TLS.
CONNECT_SECONDS = 15.0
#: Bytes of an error body that are read; the rest is left on the wire.
ERROR_BYTES = 64 * 1024
#: What stands for a key where the endpoint wants none; the client insists on one.
NO_KEY = "none"

_ENCODINGS = frozenset({"identity", "gzip", "x-gzip", "deflate", ""})
_DONE = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\]")


@dataclass
class Raw:
    """What one attempt brought, before anybody believed it."""

    #: HTTP status; None when there was no response.
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    #: ``""``, ``connect``, ``reset``, ``timeout``, ``too_large`` or ``invalid``.
    fault: str = ""
    #: One line about the fault, without the key.
    detail: str = ""


class _ErrorBody(httpx2.AsyncByteStream):
    """The first bytes of an error response: the client reads such a body whole before anybody can look at its size."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = ERROR_BYTES
        async for chunk in self._inner:
            yield chunk[:left]
            left -= len(chunk)
            if left <= 0:
                return

    async def aclose(self) -> None:
        """Close the connection's stream."""
        await self._inner.aclose()


async def _check_response(response: httpx2.Response) -> None:
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in _ENCODINGS:
        # Layers of compression, or kinds that shrink a thousandfold, make a small answer a large one.
        raise httpx2.DecodingError(f"the answer has an encoding that was not asked for: {shorten(encoding, 40)}")
    if response.status_code >= 400:
        response.stream = _ErrorBody(response.stream)


class Transport:
    """A client of one endpoint.

    Args:
        base_url: the endpoint, without credentials in messages.
        key: sent as a bearer token and kept nowhere else.
        max_bytes: largest answer that is taken.
    """

    def __init__(self, base_url: str, key: str, max_bytes: int) -> None:
        self._scrub = Scrubber(key)
        self._max_bytes = max_bytes
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="orienteer-model", daemon=True)
        self._thread.start()
        self._closing = threading.Lock()
        self._client = openai.AsyncOpenAI(
            api_key=key or NO_KEY,
            base_url=base_url,
            max_retries=0,
            default_headers={"Accept-Encoding": "gzip"},
            http_client=openai.DefaultAsyncHttpxClient(
                event_hooks={"response": [_check_response]},
                timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
                # A proxy of the environment is for other machines, not for this one.
                trust_env=urlsplit(base_url).hostname not in ("127.0.0.1", "localhost", "::1"),
            ),
        )

    def __repr__(self) -> str:
        return "Transport()"

    def send(self, payload: Mapping[str, Any], seconds: float, cancel: threading.Event) -> Raw:
        """Make one attempt and return what came; faults are data, not exceptions.

        Args:
            payload: arguments of ``chat.completions.create``.
            seconds: wall clock for the whole attempt.
            cancel: when set, the attempt is dropped at once.

        Raises:
            Interrupted: ``cancel`` was set.
        """
        create: Any = self._client.chat.completions.with_streaming_response.create
        return self._wait(lambda: create(**payload), seconds, cancel)

    def models(self, seconds: float, cancel: threading.Event) -> Raw:
        """Ask the endpoint for its list of models; costs no tokens. Like :meth:`send` in everything else."""
        return self._wait(lambda: self._client.models.with_streaming_response.list(), seconds, cancel)

    def _wait(self, opened: Callable[[], Any], seconds: float, cancel: threading.Event) -> Raw:
        raw = Raw()
        deadline = time.monotonic() + seconds
        future = self._submit(self._attempt(opened, seconds, raw))
        try:
            while True:
                try:
                    future.result(timeout=min(TICK, max(deadline - time.monotonic(), 0.01)))
                    return raw
                except concurrent.futures.TimeoutError:
                    if future.done():
                        return raw
                except concurrent.futures.CancelledError:
                    raise Interrupted("the model was closed while a call was in flight") from None
                if cancel.is_set() or not self._thread.is_alive():
                    raise Interrupted("stopped while a model call was in flight")
                # The loop keeps the same deadline; this one also holds when the loop itself is busy.
                if time.monotonic() > deadline + 1.0:
                    return Raw(raw.status, raw.headers, fault="timeout", detail=f"no answer in {seconds:g} s")
        finally:
            # Also for Ctrl-C in this thread; nothing happens to a call that is over.
            future.cancel()

    def _submit(self, work: Coroutine[Any, Any, None]) -> concurrent.futures.Future[None]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _attempt(self, opened: Callable[[], Any], seconds: float, raw: Raw) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._receive(opened, raw)
        except TimeoutError:
            raw.fault, raw.detail = "timeout", f"no complete answer in {seconds:g} s"
        except openai.APIStatusError as error:
            raw.status = error.status_code
            raw.headers = self._headers(error.response.headers)
            # A body that breaks off leaves the response unread; its status is what counts.
            with contextlib.suppress(Exception):
                raw.body[:] = error.response.content[:ERROR_BYTES]
        except openai.APITimeoutError as error:
            raw.fault = "connect" if isinstance(error.__cause__, httpx2.ConnectTimeout) else "timeout"
            raw.detail = self._reason(error)
        except (openai.APIConnectionError, httpx2.TransportError) as error:
            cause = error.__cause__ if isinstance(error, openai.APIConnectionError) else error
            raw.fault = "connect" if isinstance(cause, httpx2.ConnectError) else "reset"
            if isinstance(cause, httpx2.DecodingError | httpx2.UnsupportedProtocol | httpx2.TooManyRedirects):
                raw.fault = "invalid"
            raw.detail = self._reason(error)
        except (openai.OpenAIError, httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            raw.fault, raw.detail = "invalid", self._reason(error)
        except (ValueError, TypeError, UnicodeError) as error:
            raw.fault, raw.detail = "invalid", self._reason(error)

    async def _receive(self, opened: Callable[[], Any], raw: Raw) -> None:
        async with opened() as response:
            raw.status = response.status_code
            raw.headers = self._headers(response.headers)
            async for chunk in response.iter_bytes():
                start = max(len(raw.body) - 16, 0)
                raw.body += chunk
                if len(raw.body) > self._max_bytes:
                    raw.body.clear()
                    raw.fault, raw.detail = "too_large", f"the answer is larger than {self._max_bytes:,} bytes"
                    return
                # Some servers keep the connection open after the last event.
                if _DONE.search(raw.body, start):
                    return

    def _headers(self, headers: Any) -> dict[str, str]:
        return {str(k).lower(): self._scrub.clean(str(v)) for k, v in headers.items()}

    def _reason(self, error: BaseException) -> str:
        cause = error.__cause__ or error
        return shorten(self._scrub.clean(str(cause) or type(cause).__name__))

    async def _end(self) -> None:
        calls = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self._client.close()

    def close(self) -> None:
        """Drop what is in flight, close connections and stop the loop."""
        with self._closing:
            if not self._loop.is_closed():
                self._close()

    def _close(self) -> None:
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(timeout=2)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=2)
        if not self._thread.is_alive():
            self._loop.close()
