"""Examples of docstrings as code, because Markdown takes `>>>` for quotes (an extension of griffe)."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>>.*(?:\n(?!\n).*)*", re.MULTILINE)  # up to an empty line


class Examples(griffe.Extension):
    """Puts fences around the examples of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
