"""The protocol: every request is answered, also one that is not valid.

The library answers a request only if it can read it. Here a message is read as a whole, so that each has one of these ends:

    not JSON                                    error -32700, without an id
    JSON, not a message                         error -32600, with the id if there is one
    request before `initialize`                 error -32002
    request after `shutdown`, second initialize error -32600
    request for a method that is not offered    error -32601
    request with wrong parameters               error -32602
    notification that is one of these           left out
    anything else                               handled
"""

from __future__ import annotations

import logging
from typing import Any

from lsprotocol import types as lsp
from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
    JsonRpcMethodNotFound,
    JsonRpcParseError,
    JsonRpcServerNotInitialized,
)
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol

__all__ = ["AnsweringProtocol", "AnsweringServer"]

_LOG = logging.getLogger(__name__)
_MAX_REASON = 200


class AnsweringProtocol(LanguageServerProtocol):
    """The protocol of the library, which reads and answers messages as above."""

    def structure_message(self, data: Any) -> Any:
        """Leave an object as it is: the library calls this for each object inside of a message, too."""
        return data

    def handle_message(self, message: Any) -> None:
        """Handle or refuse one message, which is any JSON value."""
        fields = message if isinstance(message, dict) else {}
        refusal = self._refusal(fields)
        if refusal is None:
            try:
                structured = super().structure_message(fields)
            except JsonRpcException as error:
                refusal = JsonRpcInvalidParams(f"{fields.get('method', 'answer')}: {_reason(error)}")
            else:
                super().handle_message(structured)
                return
        notification, answer = "method" in fields and "id" not in fields, "result" in fields or "error" in fields
        if notification or answer:
            _LOG.info("left out: %s", refusal)
        else:
            self._refuse(_id_of(fields), refusal)

    def refuse_text(self) -> None:
        """Answer a text that is not JSON."""
        self._refuse(None, JsonRpcParseError())

    def _refuse(self, number: int | str | None, refusal: JsonRpcException) -> None:
        # The library's own form leaves out an id that is null, which JSON-RPC asks for.
        error = {"code": refusal.code, "message": refusal.message}
        self._send_data({"jsonrpc": self.VERSION, "id": number, "error": error})

    def _refusal(self, fields: dict[str, Any]) -> JsonRpcException | None:
        """Why a message is refused before its parameters are read; None if it is not."""
        method, answer = fields.get("method"), "result" in fields or "error" in fields
        whole = isinstance(method, str) or (answer and "method" not in fields)
        if fields.get("jsonrpc") != self.VERSION or ("id" in fields and _id_of(fields) is None) or not whole:
            return JsonRpcInvalidRequest('not a message: "jsonrpc" is "2.0", "id" a number or a text, "method" a text')
        if answer or method in (lsp.EXIT, lsp.CANCEL_REQUEST):
            return None
        if (self._workspace is None) != (method == lsp.INITIALIZE):
            if method == lsp.INITIALIZE:
                return JsonRpcInvalidRequest("the server is initialized already")
            return JsonRpcServerNotInitialized("send initialize first")
        if self._shutdown:
            return JsonRpcInvalidRequest("the server is shut down; send exit")
        if method not in self.fm.builtin_features and method not in self.fm.features:
            return JsonRpcMethodNotFound(f"{method}: this server does not offer it"[:_MAX_REASON])
        return None


class AnsweringServer(LanguageServer):
    """The server of the library with this protocol; what goes wrong is answered or logged, and does not pop up in the editor."""

    protocol: AnsweringProtocol

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Answer a text that is not JSON; log any other error, which has been answered."""
        if source is JsonRpcException:
            self.protocol.refuse_text()
        _LOG.info("%s: %s", getattr(source, "__name__", source), error)


def _id_of(fields: dict[str, Any]) -> int | str | None:
    number = fields.get("id")
    return number if isinstance(number, int | str) and not isinstance(number, bool) else None


def _reason(error: BaseException) -> str:
    """The innermost reason of an error of the library: which value it does not take."""
    found: BaseException = error.__cause__ or error
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return f"{type(found).__name__} {found}"[:_MAX_REASON]
