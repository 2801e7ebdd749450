"""``python -m tests.structure``: the present violations, as ``allowed.py`` has to say them."""

from tests.structure.test_class_names import repeated
from tests.structure.test_module_names import gerunds
from tests.structure.test_sizes import crowded_folders

found = {
    "PRODUCT_GERUNDS": gerunds("api", "cdi", "driver"),
    "TEST_GERUNDS": gerunds("tests"),
    "CLASS_NAMES": repeated(),
    "CROWDED_FOLDERS": crowded_folders(),
}
print(
    '"""The violations that there still are. The sets only shrink: `python -m tests.structure` prints what is left."""'
)
print("\nfrom typing import Final\n")
for name, violations in found.items():
    if violations:
        rows = "".join(f'        "{violation}",\n' for violation in sorted(violations))
        print(f"{name}: Final[frozenset[str]] = frozenset(\n    {{\n{rows}    }}\n)")
    else:
        print(f"{name}: Final[frozenset[str]] = frozenset()")
