"""Damage to bytes, and to folders: what disks, networks and strangers do."""

from pathlib import Path

NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)


def mutated(content, rng):
    """Return content with one to four changes."""
    content = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        rng.choice(CHANGES)(content, rng)
    return bytes(content)


def flip_a_bit(content, rng):
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def set_a_byte(content, rng):
    if content:
        content[rng.randrange(len(content))] = rng.randrange(256)


def set_a_number(content, rng):
    size = rng.choice((1, 2, 4, 8))
    at = rng.randrange(len(content) + 1)
    content[at : at + size] = (rng.choice(NUMBERS) % 256**size).to_bytes(size, rng.choice(("little", "big")))


def cut(content, rng):
    del content[rng.randrange(len(content) + 1) :]


def lose_some(content, rng):
    at = rng.randrange(len(content) + 1)
    del content[at : at + rng.randrange(1, 64)]


def repeat_some(content, rng):
    at, to = (rng.randrange(len(content) + 1) for _ in range(2))
    content[to:to] = content[at : at + rng.randrange(1, 64)]


def erase_some(content, rng):
    at = rng.randrange(len(content) + 1)
    n = len(content[at : at + rng.randrange(1, 512)])
    content[at : at + n] = bytes(n)


def swap_some(content, rng):
    n = rng.randrange(1, 32)
    a, b = (rng.randrange(max(len(content) - n, 1)) for _ in range(2))
    content[a : a + n], content[b : b + n] = content[b : b + n], content[a : a + n]


CHANGES = (
    *(flip_a_bit, flip_a_bit, set_a_byte, set_a_number, cut),
    *(lose_some, repeat_some, erase_some, swap_some),
)


def damage_folder(files, folder, rng):
    """Write files (content by relative path) into a folder, one of them changed, lost, or another's."""
    names = sorted(files)
    victim, other = rng.choice(names), rng.choice(names)
    contents = dict(files)
    how = rng.randrange(8)
    if how == 0:
        del contents[victim]
    elif how == 1:
        contents[victim], contents[other] = files[other], files[victim]
    elif how == 2:
        contents[f"{victim}.copy"] = files[victim]
    else:
        contents[victim] = mutated(files[victim], rng)
    for name, content in contents.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
