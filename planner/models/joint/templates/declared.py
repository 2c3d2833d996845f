"""The declared space of fabric templates in words, and what remains outside."""

TEMPLATE_SPACE = (
    "one fabric a site, of one switch in one family: rail, rack, rail-only, dragonfly, dragonfly+; "
    "NICs over the fewest lanes that carry them, leaf ports split by breakout, spare ports; "
    "leaf domains of any whole units of racks; a single switch, two tiers, three tiers with pods of all or of some "
    "leaf domains, every number of uplinks and bundle of leaves and of spines; "
    "four tiers at the slowdowns of their leaves with any number of uplinks, "
    "sends and allreduces each times 1, 1.5, 2, 4 or any; "
    "dragonflies with every bundle and number of links between groups; "
    "WAN gateways; links at one price or by length; every number of stripes"
)
TEMPLATE_OUTSIDE = (
    "several switches or families in one fabric; leaf domains that part a CP group; unequal bundles; "
    "pods, zones and groups of more rails than their count needs (groups under valiant have any), zones and groups on "
    "shortest paths of more pods or domains than their count needs; two-tier pods that nothing joins; "
    "four tiers at other slowdowns, or dearer for less power; one zone alone but for a pin or a WAN gateway"
)
