"""A boot sector that goes where every guest kernel goes, and says so from 64-bit mode.

Real mode, protected mode, one interrupt and its return, paging, long mode; then it writes `SPEAKS`
to the firmware's debug port. Some hosts run firmware under KVM and fail at one of these steps.
"""

import struct

SPEAKS = b"livevirt: long mode\n"
DEBUG_PORT = 0x402

_CODE = """
fa              cli
31c0            xor   ax, ax
8ed8            mov   ds, ax
8ec0            mov   es, ax
8ed0            mov   ss, ax
bc007c          mov   sp, 7c00
0f0116e87c      lgdt  [7ce8]
0f20c0          mov   eax, cr0
0c01            or    al, 1                 protected mode
0f22c0          mov   cr0, eax
ea1e7c0800      jmp   08:7c1e
66b81000        mov   ax, 10
8ed8            mov   ds, ax
8ec0            mov   es, ax
8ed0            mov   ss, ax
bf00100000      mov   edi, 1000             interrupt table at 1000, page tables from 2000
31c0            xor   eax, eax
b900100000      mov   ecx, 1000
f3ab            rep stosd
c705001100009f7c0800  mov [1100], 00087c9f  interrupt 20 is handled at 7c9f
c70504110000008e0000  mov [1104], 00008e00
0f011dee7c0000  lidt  [7cee]
cd20            int   20
c7050020000003300000  mov [2000], 3003
c7050030000003400000  mov [3000], 4003
c7050040000083000000  mov [4000], 83        one page of 2 MiB
b800200000      mov   eax, 2000
0f22d8          mov   cr3, eax
0f20e0          mov   eax, cr4
0c20            or    al, 20                physical address extension
0f22e0          mov   cr4, eax
b9800000c0      mov   ecx, c0000080
0f32            rdmsr
80cc01          or    ah, 1                 long mode
0f30            wrmsr
0f20c0          mov   eax, cr0
0d00000080      or    eax, 80000000         paging
0f22c0          mov   cr0, eax
eaa07c00001800  jmp   18:7ca0
cf              iret                        the handler, 7c9f
beb47c0000      mov   esi, 7cb4             64-bit code, 7ca0
b914000000      mov   ecx, 14
66ba0204        mov   dx, 402
fc              cld
f36e            rep outsb
f4              hlt
ebfd            jmp   -1
"""

_SEGMENTS = (0, 0x00CF9B000000FFFF, 0x00CF93000000FFFF, 0x00AF9B000000FFFF)  # 32-bit, data, 64-bit


def image() -> bytes:
    """Return a disk to boot from; the firmware reads no smaller one."""
    code = b"".join(bytes.fromhex(line.split()[0]) for line in _CODE.split("\n") if line)
    tables = b"".join(segment.to_bytes(8, "little") for segment in _SEGMENTS)
    tables += struct.pack("<HI", len(tables) - 1, 0x7CC8) + struct.pack("<HI", 0x107, 0x1000)
    sector = (code + SPEAKS + tables).ljust(510, b"\0") + b"\x55\xaa"
    return sector.ljust(1024 * 1024, b"\0")
