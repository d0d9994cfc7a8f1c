"""What Vitastor 3.0.8 did at another time on a machine of this kind (2 cores, Linux, loopback): context, not an opponent. Three storage processes,
three copies, all on the same 2 cores; one client, fio with its own engine, 4 GiB image written once before, 10 s after 2 s; of runs that were
repeated the best. In memory: files on tmpfs with O_DIRECT. On disk: files on ext4. Without checksums, its default."""

from typing import NamedTuple


class Known(NamedTuple):
    value: float
    # What is not as it is with us, in words; "" where nothing is.
    how: str = ""


# Its writes to a disk are acknowledged before any flush, unless it is told otherwise; ours are durable each.
VOLATILE = "acknowledged before any flush"
DURABLE = "durable each (O_SYNC)"

# By media, case and figure.
FIGURES = {
    "memory": {
        ("4k random read, depth 128", "iops"): Known(68_918),
        ("4k random read, depth 128", "per_core"): Known(58_900),
        ("4k random read, depth 1", "mean_us"): Known(83),
        ("4k random write, depth 128", "iops"): Known(40_059),
        ("4k random write, depth 128", "per_core"): Known(25_800),
        ("4k random write, depth 1", "mean_us"): Known(216),
        ("8k 80/20, depth 64", "iops"): Known(33_403),
        ("8k 80/20, depth 64", "per_core"): Known(22_300),
        ("16k 70/30, depth 64", "iops"): Known(23_757),
        ("16k 70/30, depth 64", "per_core"): Known(15_600),
        ("32k 50/50, depth 64", "iops"): Known(14_109, "50 % random, ours 80 %"),
        ("32k 50/50, depth 64", "per_core"): Known(9_000, "50 % random, ours 80 %"),
        ("512k sequential read, depth 1", "mib_s"): Known(956),
        ("512k sequential read, depth 16", "mib_s"): Known(1_685),
        ("512k sequential read, depth 128", "mib_s"): Known(978),
        ("4M sequential read, depth 16", "mib_s"): Known(1_169),
        ("512k sequential write, depth 1", "mib_s"): Known(438),
        ("512k sequential write, depth 16", "mib_s"): Known(475),
        ("512k sequential write, depth 128", "mib_s"): Known(460),
        ("4M sequential write, depth 16", "mib_s"): Known(469),
    },
    "disk": {
        ("4k random read, depth 128", "iops"): Known(72_620),
        ("4k random read, depth 1", "mean_us"): Known(110),
        ("4k random write, depth 128", "iops"): Known(16_929, DURABLE),
        ("4k random write, depth 1", "mean_us"): Known(447, DURABLE),
        ("8k 80/20, depth 64", "iops"): Known(34_512, VOLATILE),
        ("16k 70/30, depth 64", "iops"): Known(25_168, VOLATILE),
        ("32k 50/50, depth 64", "iops"): Known(12_634, VOLATILE),
        ("4M sequential read, depth 16", "mib_s"): Known(1_040),
        ("4M sequential write, depth 16", "mib_s"): Known(318, VOLATILE),
    },
}


class Peak(NamedTuple):
    """The most it did at depth 128, and its p99 there, µs, the least and the most that was seen; None where it was not kept."""
    iops: float
    p99_us: tuple[float, float] | None
    how: str = ""


PEAKS = {
    ("memory", "randwrite"): Peak(40_059, (6_700, 9_100)),
    ("memory", "randread"): Peak(68_918, (3_500, 4_300)),
    ("disk", "randwrite"): Peak(20_383, None, VOLATILE),
    ("disk", "randread"): Peak(72_620, None),
}


def known(media, what, figure):
    """What it did there; None where that was not measured."""
    return FIGURES[media].get((what, figure))
