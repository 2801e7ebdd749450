"""The violations that there still are. The sets only shrink: `python -m tests.structure` prints what is left."""

from typing import Final

PRODUCT_GERUNDS: Final[frozenset[str]] = frozenset(
    {
        "driver/allocation/agreeing.py",
        "driver/allocation/filling.py",
        "driver/allocation/keeping.py",
        "driver/allocation/packing.py",
        "driver/allocation/pairing.py",
        "driver/allocation/scouting.py",
        "driver/allocation/spreading.py",
        "driver/controller/listing.py",
        "driver/diagnostics/filtering.py",
        "driver/local/binding.py",
        "driver/local/extending.py",
        "driver/local/filtering.py",
    }
)
TEST_GERUNDS: Final[frozenset[str]] = frozenset(
    {
        "tests/allocation/test_agreeing.py",
        "tests/allocation/test_keeping.py",
        "tests/allocation/test_packing.py",
        "tests/allocation/test_scouting.py",
        "tests/controller/test_listing.py",
        "tests/local/test_binding.py",
        "tests/local/test_extending.py",
        "tests/local/test_filtering.py",
    }
)
CLASS_NAMES: Final[frozenset[str]] = frozenset(
    {
        "Ailment 2",
        "Asked 2",
        "Budget 2",
        "Caches 2",
        "Change 2",
        "Cluster 2",
        "Cluster 3",
        "Condition 2",
        "Demand 2",
        "Failed 2",
        "Function 2",
        "Holdings 2",
        "Inventory 2",
        "Obstacle 2",
        "Pending 2",
        "Place 2",
        "Placed 2",
        "Placed 3",
        "Placed 4",
        "Placement 2",
        "Profile 2",
        "Queueing 2",
        "Request 2",
        "Requirement 2",
        "Selector 2",
        "Shape 2",
        "Side 2",
        "Snapshot 2",
        "Source 2",
        "Step 2",
        "Stock 2",
        "Triggers 2",
        "Verdict 2",
        "Want 2",
    }
)
CROWDED_FOLDERS: Final[frozenset[str]] = frozenset()
