"""AMD's library reads xclbin files as Kerf does, its header has the same layout, and it takes Kerf's loads."""

import mmap
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from kerf_dra.driver.kubeletplugin.backends.base import HardwareBusyError
from kerf_dra.driver.kubeletplugin.backends.fpga.images.files import ImageBits
from kerf_dra.driver.kubeletplugin.backends.xrt.library import XrtLibrary
from kerf_dra.driver.kubeletplugin.backends.xrt.xclbin import BANK, HEAD, IP, SECTION, XclbinHeader, read_xclbin_header
from tests.fakes.xrt import build_xclbin
from tests.fakes.xrt.machine import AES_ID, INTERFACE
from tests.fakes.xrt.xclbin import DDR4, HBM
from tests.oracle.judge import Judge
from tests.oracle.xrt.packages import NoXrtError, unpack_xrt
from tools.realcluster.builds import cache

pytestmark = pytest.mark.oracle

CASES: Final = int(os.environ.get("KERF_ORACLE_CASES", "40"))


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_xrt(tmp_path_factory.mktemp("xrt"), cache().with_name("xrt"))


@pytest.fixture
def folder(unpacked: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of XRT, whose library loads without a card."""
    monkeypatch.setenv("XCL_EMULATION_MODE", "noop")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(unpacked / "xrt/lib"))
    return unpacked / "xrt"


@pytest.fixture
def judge(folder: Path) -> Iterator[Judge]:
    with Judge(Path(sys.executable), ["-m", "tests.oracle.xrt.library_process", str(folder)]) as running:
        yield running


def parse(data: bytes) -> XclbinHeader:
    return read_xclbin_header(lambda offset, length: data[offset : offset + length], len(data))


def generate(random_: random.Random) -> dict[str, Any]:
    """What is in a file: kernels with several compute units each, memories, a platform's name, a signature."""
    kernels = [
        f"{kernel}:{kernel}_{unit}"
        for kernel in random_.sample(("aes", "fft", "vadd", "zstd_compress"), random_.randrange(5))
        for unit in range(random_.randrange(1, 9))
    ]
    banks = [(f"HBM[{at}]", HBM, 256 << 10) for at in range(random_.randrange(33))]
    banks += [(f"DDR[{at}]", DDR4, 16 << 20) for at in range(random_.randrange(5))]
    return {
        "kernels": kernels,
        "banks": banks,
        "platform": f"xilinx_u{random_.randrange(1000)}_gen3x16_xdma_{random_.randrange(99)}",
        "padding": random_.randrange(1000),
        "signature": bytes(random_.choice((0, 0, 700))),
    }


def test_the_library_reads_what_kerf_reads(judge: Judge, tmp_path: Path) -> None:
    """FP-03."""
    random_, file = random.Random(1), tmp_path / "a.xclbin"
    for _ in range(CASES):
        built = generate(random_)
        own = f"{random_.getrandbits(128) | 1:032x}"
        own = f"{own[:8]}-{own[8:12]}-{own[12:16]}-{own[16:20]}-{own[20:]}"
        file.write_bytes(data := build_xclbin(own, interface=INTERFACE, **built))
        header, answer = parse(data), judge.ask({"file": str(file)})
        assert answer["uuid"] == header.afu_id == own
        assert answer["platform"] == header.platform
        assert answer["units"] == header.compute_units == len(built["kernels"])
        assert answer["kernels"] == len({ip.name.partition(":")[0] for ip in header.ips})


def test_the_library_refuses_another_format_too(judge: Judge, tmp_path: Path) -> None:
    file = tmp_path / "a.xclbin"
    file.write_bytes(build_xclbin(AES_ID, interface=INTERFACE, magic=b"xclbin1\0"))
    assert judge.ask({"file": str(file)}) == {"refused": True}


def test_the_library_takes_a_load_and_says_that_it_refuses_one(judge: Judge, tmp_path: Path) -> None:
    """The declarations for ctypes are those of the library; in its mode without a card."""
    file = tmp_path / "a.xclbin"
    file.write_bytes(build_xclbin(AES_ID, interface=INTERFACE))
    assert judge.ask({"load": str(file)}) == {"uuid": AES_ID}
    file.write_bytes(build_xclbin(AES_ID, interface=INTERFACE, magic=b"xclbin1\0"))
    assert judge.ask({"load": str(file)}) == {"failed": "load"}


def load(library: XrtLibrary, file: Path) -> None:
    with file.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as data:
        library.load("0", ImageBits(descriptor=stream.fileno(), data=data, offset=0), None)


def test_the_process_of_a_load_has_the_library_take_an_image_and_refuse_one(folder: Path, tmp_path: Path) -> None:
    library, file = XrtLibrary(folder), tmp_path / "a.xclbin"
    assert library.find_fault() == ""
    file.write_bytes(build_xclbin(AES_ID, interface=INTERFACE))
    load(library, file)
    file.write_bytes(build_xclbin(AES_ID, interface=INTERFACE, magic=b"xclbin1\0"))
    with pytest.raises(HardwareBusyError, match="the image cannot be loaded into 0: XRT says no cause"):
        load(library, file)


LAYOUT: Final = r"""
#include <stddef.h>
#include <stdio.h>
#include "xclbin.h"
#define SHOW(name, value) printf("%s %zu\n", name, (size_t)(value))
int main(void) {
    SHOW("head", offsetof(struct axlf, m_sections));
    SHOW("signature", offsetof(struct axlf, m_signature_length));
    SHOW("length", offsetof(struct axlf, m_header.m_length));
    SHOW("mode", offsetof(struct axlf, m_header.m_mode));
    SHOW("interface", offsetof(struct axlf, m_header.rom_uuid));
    SHOW("platform", offsetof(struct axlf, m_header.m_platformVBNV));
    SHOW("uuid", offsetof(struct axlf, m_header.uuid));
    SHOW("sections", offsetof(struct axlf, m_header.m_numSections));
    SHOW("section", sizeof(struct axlf_section_header));
    SHOW("section offset", offsetof(struct axlf_section_header, m_sectionOffset));
    SHOW("section size", offsetof(struct axlf_section_header, m_sectionSize));
    SHOW("ip", sizeof(struct ip_data));
    SHOW("ip address", offsetof(struct ip_data, m_base_address));
    SHOW("ip name", offsetof(struct ip_data, m_name));
    SHOW("ips", offsetof(struct ip_layout, m_ip_data));
    SHOW("bank", sizeof(struct mem_data));
    SHOW("bank size", offsetof(struct mem_data, m_size));
    SHOW("bank name", offsetof(struct mem_data, m_tag));
    SHOW("banks", offsetof(struct mem_topology, m_mem_data));
    SHOW("kinds", BITSTREAM == 0 && EMBEDDED_METADATA == 2 && MEM_TOPOLOGY == 6 && IP_LAYOUT == 8 && PDI == 18 &&
         BITSTREAM_PARTIAL_PDI == 19 && IP_KERNEL == 1 && IP_PS_KERNEL == 7);
    SHOW("modes", XCLBIN_HW_EMU == 4 && XCLBIN_SW_EMU == 5 && XCLBIN_HW_EMU_PR == 6);
    SHOW("memories", MEM_DDR3 == 0 && MEM_DDR4 == 1 && MEM_DRAM == 2 && MEM_PREALLOCATED_GLOB == 4 && MEM_HBM == 6);
    return 0;
}
"""


def test_the_librarys_header_has_the_same_layout(unpacked: Path, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    assert compiler, "this comparison needs a C compiler (cc)"
    (tmp_path / "layout.c").write_text(LAYOUT)
    program = tmp_path / "layout"
    command = [compiler, "-I", str(unpacked / "usr/include/xrt"), "-o", str(program), str(tmp_path / "layout.c")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    found = {name: int(value) for name, value in re.findall(r"(.+) (\d+)", lines)}
    assert found == {
        "head": HEAD.size,
        "signature": 8,
        "length": 304,
        "mode": 332,
        "interface": 336,
        "platform": 352,
        "uuid": 416,
        "sections": 448,
        "section": SECTION.size,
        "section offset": 24,
        "section size": 32,
        "ip": IP.size,
        "ip address": 8,
        "ip name": 16,
        "ips": 8,
        "bank": BANK.size,
        "bank size": 8,
        "bank name": 24,
        "banks": 8,
        "kinds": 1,
        "modes": 1,
        "memories": 1,
    }


def test_without_packages_the_error_says_where_they_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoXrtError, match="Debian 12's packages"):
        unpack_xrt(tmp_path, tmp_path / "cache")
