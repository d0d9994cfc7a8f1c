"""crc32c, as fast as plain Python can."""


def crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC_TABLE = crc_table()
# x^563 + x^109 + x^58 + x^53 + x^31 + 1 is a multiple of the Castagnoli polynomial, and so are its squares, which double
# the exponents. So the first bits of a message may be taken off and added again, at five places, further behind: a few
# shifts of a long integer instead of a table look-up for each byte. The table does the last 70 bytes.
FOLD_DEGREE, FOLD_TERMS, FOLD_LEAST_BITS = 563, (109, 58, 53, 31, 0), 600
fold_plans = {}


def fold_plan(length):
    """For a message of so many bytes: [(bits to take off, their mask, where to add them)], bytes that remain."""
    steps, bits = [], length * 8
    while bits > FOLD_LEAST_BITS:
        takes = []
        double = 0
        while FOLD_DEGREE << double < bits:
            degree, reach = FOLD_DEGREE << double, (FOLD_DEGREE - FOLD_TERMS[0]) << double
            takes.append((min(bits - degree, reach) & ~7, double, degree))
            double += 1
        take, double, degree = max(takes)
        steps.append((take, (1 << take) - 1, [degree - (term << double) - take for term in FOLD_TERMS]))
        bits -= take
    return steps, bits // 8


def crc32c(data):
    """The sum of at least 4 bytes."""
    plan = fold_plans.get(len(data))
    if plan is None:
        plan = fold_plans[len(data)] = fold_plan(len(data))
    steps, rest = plan
    message = int.from_bytes(data, "little") ^ 0xFFFFFFFF
    for take, mask, (a, b, c, d, e) in steps:
        first = message & mask
        message = message >> take ^ first << a ^ first << b ^ first << c ^ first << d ^ first << e
    crc, table = 0, CRC_TABLE
    for byte in message.to_bytes(rest, "little"):
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
