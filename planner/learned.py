"""What one solve leaves to the next of like instances: answers of the layout search, and what a rack cost with all that joins it."""

from dataclasses import dataclass, field

from planner.models.layout_memory import Memory


@dataclass(slots=True)
class Learned:
    """Kept by whoever solves many instances one after another; it saves time and changes no answer."""

    layouts: Memory = field(default_factory=Memory)
    usd_per_rack: float | None = None
    shared: bool = True  # with solves to come
