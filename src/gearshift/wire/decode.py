"""A JSON body to a struct, or a 400 that names the field. Which fields there are is the endpoints' matter."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from gearshift.wire.errors import WireError, invalid

T = TypeVar("T")

# msgspec ends its messages with the place: " - at `$.messages[0].content`", or "`key` in" or "..." for mappings.
_PLACE = re.compile(r"^(?P<what>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)
# "Expected `int`, got `str`", but not "Expected `int` <= 5" or "Expected `array` of length >= 1".
_WRONG_TYPE = re.compile(r"^Expected .*, got ", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<field>[^`]+)`$")
_UNKNOWN_VALUE = re.compile(r"^Invalid (?:enum )?value '?(?P<value>[^']*)'?$")
_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_OTHER_MEDIA = ("image", "audio", "file", "video", "refusal_audio")


def decode(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw, prefix: str = "") -> T:
    """The body as the decoder's type.

    prefix: path of this value inside the whole body, for values that are decoded on their own.

    Raises:
        WireError: status 400; `param` is the dotted path of the field at fault.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _wrong_field(str(error), prefix) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise invalid(_not_json(str(error), bytes(body)), prefix or None, "invalid_json") from None
    except RecursionError:
        raise invalid("The JSON body is nested too deeply.", prefix or None, "invalid_json") from None


def _wrong_field(message: str, prefix: str) -> WireError:
    match = _PLACE.match(message)
    what, path = (match["what"], match["path"] or "") if match else (message, "")
    path = path.replace("[...]", "")
    code = "invalid_type" if _WRONG_TYPE.match(what) else "invalid_value"
    if missing := _MISSING.match(what):
        path = _join(path, missing["field"])
        what, code = f"Missing required field {missing['field']!r}", "missing_required_parameter"
    elif unknown := _UNKNOWN_VALUE.match(what):
        value = unknown["value"]
        if path.endswith("type") and any(media in value for media in _OTHER_MEDIA):
            path = _join(prefix, path)
            message = f"Content of type {value!r}, as in {path!r}, is not served here: this server takes text."
            return invalid(message, path, "unsupported_value")
    path = _join(prefix, path)
    place = f" at '{path}'" if path else " as the request body"
    return invalid(f"{what.replace('`', chr(39))}{place}.", path or None, code)


def _join(outer: str, inner: str) -> str:
    return f"{outer}.{inner}" if outer and inner and not inner.startswith("[") else outer + inner


def _not_json(message: str, body: bytes) -> str:
    if message.startswith("Input data was truncated") and _HALF_PAIR.search(body):
        return "The request body is not valid JSON: it ends early, or a \\u escape is half of a surrogate pair."
    return f"The request body is not valid JSON: {message}."
