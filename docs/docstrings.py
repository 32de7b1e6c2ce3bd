"""Docstrings as mkdocstrings shows them: they are written for readers of the code.

Examples become blocks of code, wherever they stand, and roles such as ``:func:`` plain names. A
class with fields, such as an event, shows them as they are declared, with their comments.
"""

import ast
import re
import textwrap
from itertools import takewhile
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)
_REMARK = re.compile(r"^# .*\n(?:# .*\n)*", re.MULTILINE)
_WIDTH = 70  # columns of a page
_ROLE = re.compile(r":\w+:`~?([^`]+)`")


def shown(text: str) -> str:
    r"""Return a docstring as Markdown.

    >>> shown("See :func:`both`.\n\n>>> both(1)\n2")
    'See `both`.\n\n```pycon\n>>> both(1)\n2\n```'
    """
    text = _ROLE.sub(r"`\1`", text)
    if "\nExamples\n---" in text:  # mkdocstrings knows these itself
        return text
    return _EXAMPLE.sub(lambda example: f"```pycon\n{example[0]}\n```", text)


def fields(source: str) -> str:
    r"""Return the fields at the top of a class, as they are declared; empty if it has none.

    >>> print(fields("class A:\n    x: int = 1  # a number\n    def f(self): ..."))
    ```python
    x: int = 1  # a number
    ```
    """
    (shown_class,) = ast.parse(textwrap.dedent(source)).body
    top = list(takewhile(lambda part: not isinstance(part, ast.FunctionDef), shown_class.body))
    places = [place for place, part in enumerate(top) if isinstance(part, ast.AnnAssign)]
    if not places:
        return ""
    # With the comments above the first of them
    begin = top[places[0] - 1].end_lineno if places[0] else top[0].lineno - 1
    lines = textwrap.dedent(source).splitlines()[begin : top[places[-1]].end_lineno]
    text = textwrap.dedent("\n".join(lines)).strip().replace("``", "")
    return f"```python\n{_REMARK.sub(_wrapped, text)}\n```"


def _wrapped(remark: re.Match[str]) -> str:
    """Wrap a comment of several lines to the width of a page."""
    words = remark[0].replace("\n# ", " ").strip()
    return textwrap.fill(words, _WIDTH, subsequent_indent="# ") + "\n"


class Docstrings(griffe.Extension):
    """Change every docstring as it is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change one."""
        if obj.docstring:
            obj.docstring.value = shown(obj.docstring.value)
        if obj.docstring and isinstance(obj, griffe.Class):
            name = (
                f"In the log: `{str(obj.keywords['name'])[1:-1]}`."
                if "name" in obj.keywords
                else ""
            )
            obj.docstring.value += f"\n\n{name}\n\n{fields(obj.source)}"
