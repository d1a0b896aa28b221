"""Elements of the page. Text is escaped unless it is an element already, so nothing in a results file can become markup."""

import html

VOID = {"meta", "img", "br", "hr"}


class Element(str):
    """Markup; everything else is text."""


def text(value) -> Element:
    return value if isinstance(value, Element) else Element(html.escape(str(value), quote=True))


def element(tag: str, /, *children, **attributes) -> Element:
    """`<tag attributes>children</tag>`. Children of None are left out, attributes of None too; `class_` is class."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value), quote=True)}"'
                    for key, value in attributes.items() if value is not None)
    if tag in VOID:
        return Element(f"<{tag}{given}>")
    return Element(f"<{tag}{given}>{join(children)}</{tag}>")


def join(children) -> Element:
    return Element("".join(text(child) for child in children if child is not None))
