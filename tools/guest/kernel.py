"""Repack a Linux boot image so that an emulated CPU starts it quickly.

A distribution's bzImage unpacks itself with xz, which takes an emulated CPU several seconds at
every boot. `repacked_kernel` keeps the boot loader's part of the file, packs the same kernel with
LZ4 and puts a small extractor before it, which enters the kernel as the original one would: in long
mode, memory identity-mapped, `rsi` pointing to the boot parameters.

Facts are from Linux' Documentation/x86/boot.rst and the ELF-64 and LZ4 block formats.
"""

from __future__ import annotations

import lzma
import struct
import subprocess

SECTOR = 512
PAGE = 4096

# Offsets in the setup header.
SETUP_SECTS = 0x1F1
SYSSIZE = 0x1F4
MAGIC = 0x202
CODE32_START = 0x214
RELOCATABLE = 0x234
PAYLOAD_OFFSET = 0x248

LOAD_ADDRESS = 0x100000  # where a loader puts a kernel that is not relocatable


def repacked_kernel(image: bytes) -> bytes:
    """Return a bzImage of the same kernel that unpacks in a moment."""
    if image[MAGIC : MAGIC + 4] != b"HdrS":
        raise ValueError("not a Linux boot image")
    setup = bytearray(image[: (image[SETUP_SECTS] + 1) * SECTOR])
    offset, length = struct.unpack_from("<II", setup, PAYLOAD_OFFSET)
    payload = image[len(setup) + offset : len(setup) + offset + length]
    if not payload.startswith(b"\xfd7zXZ"):
        raise ValueError("the kernel is not packed with xz")
    start, entry, memory = flat(lzma.LZMADecompressor().decompress(payload))
    blocks = lz4(memory)[4:] + b"\0\0\0\0"  # without the magic number; a length of 0 ends it
    kernel = extractor(start, entry) + blocks
    kernel += b"\0" * (-len(kernel) % 16)
    if LOAD_ADDRESS + len(kernel) > start:
        raise ValueError("the kernel would be unpacked over its own packed form")
    struct.pack_into("<I", setup, SYSSIZE, len(kernel) // 16)
    struct.pack_into("<I", setup, CODE32_START, LOAD_ADDRESS)
    struct.pack_into("<B", setup, RELOCATABLE, 0)
    struct.pack_into("<II", setup, PAYLOAD_OFFSET, 0, 0)
    return bytes(setup) + kernel


def lz4(data: bytes) -> bytes:
    """Pack in the kernel's LZ4 format: a magic number, then blocks, each after its length."""
    command = ["lz4", "-l", "-9", "-c"]
    return subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout


def flat(elf: bytes) -> tuple[int, int, bytes]:
    """Lay the kernel out as memory: its first physical address, the entry, the bytes before `.bss`.

    The kernel clears `.bss` itself; what is linked behind it is scratch memory.
    """
    if elf[:5] != b"\x7fELF\x02":
        raise ValueError("the kernel is not an ELF-64 file")
    entry, programs, sections = struct.unpack_from("<QQQ", elf, 0x18)
    program_size, program_count, section_size, section_count, names_index = struct.unpack_from(
        "<HHHHH", elf, 0x36
    )
    headers = [
        struct.unpack_from("<IIQQQQ", elf, sections + n * section_size)
        for n in range(section_count)
    ]
    names = elf[headers[names_index][4] :]
    (bss,) = (header[3] for header in headers if names[header[0] :].startswith(b".bss\0"))
    loads = []
    for n in range(program_count):
        kind, _, offset, virtual, physical, length = struct.unpack_from(
            "<IIQQQQ", elf, programs + n * program_size
        )
        if kind == 1:  # PT_LOAD
            if virtual <= bss < virtual + length:
                length = bss - virtual
            loads.append((physical, elf[offset : offset + length]))
    start = min(physical for physical, _ in loads)
    memory = bytearray(max(physical + len(data) for physical, data in loads) - start)
    for physical, data in loads:
        memory[physical - start : physical - start + len(data)] = data
    return start, entry, bytes(memory)


def extractor(start: int, entry: int) -> bytes:
    """Code to be entered in 32-bit mode at LOAD_ADDRESS; the packed blocks follow it.

    One page of code, then page tables that map the first 4 GiB to themselves.
    """
    tables = page_tables(LOAD_ADDRESS + PAGE)
    blocks = LOAD_ADDRESS + PAGE + len(tables)
    unpack = (
        b"\xfa"  # cli
        b"\xfc"  # cld
        b"\x89\xf5"  # mov ebp, esi      the boot parameters
        b"\xbe%(blocks)b"  # mov esi, blocks
        b"\xbf%(start)b"  # mov edi, start
        # block:
        b"\xad"  # lodsd
        b"\x85\xc0"  # test eax, eax
        b"\x74\x45"  # jz done
        b"\x8d\x1c\x06"  # lea ebx, [esi + eax]   its end
        # sequence:
        b"\x31\xc0"  # xor eax, eax
        b"\xac"  # lodsb             the token
        b"\x89\xc2"  # mov edx, eax
        b"\x89\xc1"  # mov ecx, eax
        b"\xc1\xe9\x04"  # shr ecx, 4        literals
        b"\x83\xf9\x0f"  # cmp ecx, 15
        b"\x75\x07"  # jne literals
        # more_literals:
        b"\xac"  # lodsb
        b"\x01\xc1"  # add ecx, eax
        b"\x3c\xff"  # cmp al, 255
        b"\x74\xf9"  # je more_literals
        # literals:
        b"\xf3\xa4"  # rep movsb
        b"\x39\xde"  # cmp esi, ebx
        b"\x73\xdc"  # jae block
        b"\x66\xad"  # lodsw             the offset of the match
        b"\x83\xe2\x0f"  # and edx, 15
        b"\x89\xd1"  # mov ecx, edx      and its length
        b"\x89\xfa"  # mov edx, edi
        b"\x29\xc2"  # sub edx, eax
        b"\x83\xf9\x0f"  # cmp ecx, 15
        b"\x75\x09"  # jne match
        b"\x31\xc0"  # xor eax, eax
        # more_match:
        b"\xac"  # lodsb
        b"\x01\xc1"  # add ecx, eax
        b"\x3c\xff"  # cmp al, 255
        b"\x74\xf9"  # je more_match
        # match:
        b"\x83\xc1\x04"  # add ecx, 4
        b"\x89\xf4"  # mov esp, esi      there is no stack, so this register is free
        b"\x89\xd6"  # mov esi, edx
        b"\xf3\xa4"  # rep movsb
        b"\x89\xe6"  # mov esi, esp
        b"\xeb\xbe"  # jmp sequence
        # done:
        b"\x89\xee"  # mov esi, ebp
    )
    enter = (
        b"\x0f\x01\x15%(gdtr)b"  # lgdt [gdtr]
        b"\x0f\x20\xe0\x83\xc8\x20\x0f\x22\xe0"  # cr4 |= PAE
        b"\xb8%(tables)b\x0f\x22\xd8"  # cr3 = tables
        b"\xb9\x80\x00\x00\xc0\x0f\x32\x0d\x00\x01\x00\x00\x0f\x30"  # EFER |= LME
        b"\x0f\x20\xc0\x0d\x00\x00\x00\x80\x0f\x22\xc0"  # cr0 |= PG
        b"\xea%(long)b\x10\x00"  # jmp 0x10:long
        # long:
        b"\x89\xf6"  # mov esi, esi      clears the upper half
        b"\xb8%(entry)b"  # mov eax, entry
        b"\xff\xe0"  # jmp rax
    )
    gdt = struct.pack("<4Q", 0, 0, 0x00AF9A000000FFFF, 0x00CF92000000FFFF)  # 64-bit code, data
    code = unpack + enter
    names = (b"blocks", b"start", b"gdtr", b"tables", b"long", b"entry")
    end = LOAD_ADDRESS + len(code % {name: b"1234" for name in names})
    words = (blocks, start, end + len(gdt), LOAD_ADDRESS + PAGE, end - 9, entry)
    code %= {name: struct.pack("<I", word) for name, word in zip(names, words, strict=True)}
    code += gdt + struct.pack("<HI", len(gdt) - 1, end)
    return code.ljust(PAGE, b"\0") + tables


def page_tables(address: int) -> bytes:
    """Tables of 2 MiB pages that map the first 4 GiB to themselves, to be loaded at `address`."""
    writable, huge = 0x3, 0x83  # both present
    top = [address + PAGE | writable] + [0] * 511
    middle = [address + (2 + n) * PAGE | writable for n in range(4)] + [0] * 508
    bottom = [n << 21 | huge for n in range(4 * 512)]
    return struct.pack("<3072Q", *top, *middle, *bottom)
