"""The addresses of pages. Names are in the query, because those of pools have slashes."""

from typing import Final
from urllib.parse import urlencode

from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.partitions.card_pictures.card_picture import CardPicture

CLUSTER: Final = "/"
NODE: Final = "/node"
CARD: Final = "/card"
CLAIMS: Final = "/claims"
CLAIM: Final = "/claim"
POD: Final = "/pod"
CLASSES: Final = "/classes"
CLASS: Final = "/class"
WHAT_IF: Final = "/what-if"
UPDATES: Final = "/updates"
STYLE: Final = "/view.css"
SCRIPT: Final = "/view.js"


def build_address(path: str, /, **query: str) -> str:
    """Return an address; names without a value are left out.

    >>> build_address("/node", name="a b", color="")
    '/node?name=a+b'
    """
    given = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(given, errors='replace')}" if given else path


def address_of_node(name: str) -> str:
    return build_address(NODE, name=name)


def address_of_card(picture: CardPicture) -> str:
    return build_address(CARD, driver=picture.driver, pool=picture.pool, card=picture.name)


def address_of_claim(ref: ObjectRef) -> str:
    return build_address(CLAIM, namespace=ref.namespace, name=ref.name)


def address_of_pod(ref: ObjectRef) -> str:
    return build_address(POD, namespace=ref.namespace, name=ref.name)
