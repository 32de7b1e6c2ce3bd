"""Diversity of supports: clients that overlap least, by signatures alone."""

from .ios import CHANGE_KEYS, PAPER, SUPPORT_KEYS, Ios
from .selector import Selector

METHODS = (
    Selector(
        name="support-diversity",
        about="clients whose important parameters overlap least",
        after=PAPER,
        settings=(Ios,),
        reads=SUPPORT_KEYS,
        core="selectors.client_selectors.support_diversity:SupportDiversity",
        hook="client_app.hooks.supports:IndexSignatures",
        sends=("signature",),
    ),
    Selector(
        name="signed-diversity",
        about="clients whose largest changes agree least",
        after=PAPER,
        settings=(Ios,),
        reads=CHANGE_KEYS,
        core="selectors.client_selectors.support_diversity:SupportDiversity",
        hook="client_app.hooks.signed_supports:ChangeSignatures",
        sends=("signature of changes and their signs",),
        requires={"similarity": ("none", "signed-overlap")},
    ),
)
