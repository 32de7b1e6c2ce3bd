"""Support diversity: clients whose important parameters overlap least, by signatures alone."""

from .ios import SUPPORT_KEYS, Ios
from .selector import Selector

METHODS = (
    Selector(
        name="support-diversity",
        about="clients whose important parameters overlap least",
        settings=(Ios,),
        reads=(*SUPPORT_KEYS, "hashes"),
        core="selectors.client_selectors.support_diversity:SupportDiversity",
        hook="client_app.hooks.supports:IndexSignatures",
        sends=("signature",),
    ),
)
