"""What out/bench-cluster.json keeps, and what is made of what was measured: python3 tools/bench_cluster/tests.py"""

import contextlib
import io
import json
import os
import re
import tempfile
import unittest
from unittest import mock

import equal
import failover
import flat
import goals
import machine
import plain_copy
import record
import recovery
import vitastor


class Kept(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = os.path.join(directory.name, "bench-cluster.json")
        self.results = []

    def measure(self, part, *figures, prints=None):
        with record.recorded(self.path, part, self.results, prints or {"commit": "a"}):
            for figure in figures:
                if isinstance(figure, Exception):
                    raise figure
                self.results.append({"what": part, "figure": figure})

    def parts(self):
        with open(self.path, encoding="utf-8") as file:
            said = json.load(file)
        self.assertEqual((said["format"], said["version"]), ("cairn-bench-cluster", 1))
        return said["parts"]

    def figures(self, part):
        return [result["figure"] for result in self.parts()[part]["results"]]

    def test_parts_that_are_run_one_by_one_are_all_there(self):
        self.measure("flat", 1, 2)
        self.results = []
        self.measure("budget", 3, prints={"commit": "b"})
        self.assertEqual((self.figures("flat"), self.figures("budget")), ([1, 2], [3]))
        prints = {part: entry["fingerprint"]["commit"] for part, entry in self.parts().items()}
        self.assertEqual(prints, {"flat": "a", "budget": "b"})

    def test_parts_of_one_run_hold_their_own_results(self):
        self.measure("flat", 1)
        self.measure("budget", 2)
        self.assertEqual((self.figures("flat"), self.figures("budget")), ([1], [2]))
        self.assertLessEqual(self.parts()["flat"]["at"], self.parts()["budget"]["at"])

    def test_a_part_that_is_measured_again_takes_its_own_place(self):
        self.measure("flat", 1, 2)
        self.measure("budget", 3)
        self.measure("flat", 4)
        self.assertEqual((self.figures("flat"), self.figures("budget")), ([4], [3]))

    def test_one_that_is_cut_short_says_so(self):
        with self.assertRaises(RuntimeError):
            self.measure("flat", 1, RuntimeError("killed"))
        self.assertEqual((self.figures("flat"), self.parts()["flat"]["complete"]), ([1], False))
        self.measure("flat", 2)
        self.assertTrue(self.parts()["flat"]["complete"])

    def test_one_that_measured_nothing_leaves_what_was(self):
        self.measure("flat", 1)
        with self.assertRaises(RuntimeError):
            self.measure("flat", RuntimeError("no fio"))
        self.assertEqual(self.figures("flat"), [1])

    def test_what_is_no_such_file_is_written_over(self):
        for before in ("[]", "{", '{"parts": {"flat": 1}}', '[{"what": "flat"}]'):
            with open(self.path, "w", encoding="utf-8") as file:
                file.write(before)
            self.measure("budget", 1)
            self.assertEqual(list(self.parts()), ["budget"])

    def test_a_fingerprint_names_program_machine_and_setting(self):
        prints = record.fingerprint(__file__, seconds=5)
        self.assertEqual(set(prints), {"commit", "cairn", "kernel", "cores", "seconds"})
        self.assertEqual((len(prints["cairn"]), prints["seconds"]), (64, 5))
        self.assertIsNone(record.fingerprint("/nothing/there")["cairn"])


class Figures(unittest.TestCase):
    def test_blocks_are_as_fio_writes_them(self):
        self.assertEqual([machine.bytes_of(block) for block in ("4k", "512k", "4M", "512")], [4096, 512 << 10, 4 << 20, 512])

    def test_medians_are_of_each_figure_and_of_each_process(self):
        rounds = [{"iops": 1, "cpu_us": {"a": [1, 10]}}, {"iops": 5, "cpu_us": {"a": [3, 30]}}, {"iops": 3, "cpu_us": {"a": [2, 20]}}]
        self.assertEqual(machine.medians(rounds), {"iops": 3, "cpu_us": {"a": [2, 20]}})
        self.assertEqual(machine.medians([{"cpu_us": {"a": [7]}}]), {"cpu_us": {"a": [7]}})

    def test_a_spread_is_said_of_more_than_one(self):
        self.assertEqual(machine.with_spread([1234]), "1,234")
        self.assertEqual(machine.with_spread([30, 10, 2000]), "30 (10–2,000)")

    def test_who_is_first_changes_and_all_are_there(self):
        names = ["a", "b", "c"]
        self.assertEqual([machine.turned(names, by)[0] for by in range(4)], ["a", "b", "c", "a"])
        self.assertTrue(all(sorted(machine.turned(names, by)) == names for by in range(4)))
        self.assertEqual(machine.turned([], 3), [])

    def chosen(self, words):
        with mock.patch.dict(os.environ, {"CONTESTANTS": words}):
            return machine.chosen(goals.CONTESTANTS)

    def test_contestants_are_chosen_by_name(self):
        self.assertEqual(self.chosen("ceph NVMe"), ["NVMe/TCP", "Ceph"])
        self.assertEqual(self.chosen(""), list(goals.CONTESTANTS))
        with self.assertRaisesRegex(SystemExit, "spdk.*libcairn nbd nvme ceph"):
            self.chosen("nbd spdk")

    def test_the_generator_is_told_what_fio_would_be(self):
        said = {"iops": 1000, "mean_us": 1, "p50_us": 1, "p99_us": 2, "p999_us": 3, "max_us": 4, "machine_cpu_us": 9, "process_cpu_us": [5, 7]}
        told = []

        def ran(command, **_):
            told.append([str(word) for word in command])
            return json.dumps(said)
        with mock.patch.object(machine, "run", ran):
            one = machine.generator(["nvme", "a:1", "nqn", 1], "randrw", "16k", 64, {"node 1": 77}, reads=70, random=80)
        self.assertEqual((one["cpu_us"], one["processes_us"], one["mib_s"]), ({"node 1": [5], "client": [7]}, 12, 1000 / 64))
        text = " ".join(told[0])
        for words in ("--depth 64", "--pattern mix", "--read-percent 70", "--random-percent 80", "--bytes 16384", "--pid 77", "nvme a:1 nqn 1"):
            self.assertIn(words, text)
        said["process_cpu_us"] = [7]
        with mock.patch.object(machine, "run", ran):
            machine.generator(["nvme"], "write", "512k", 1, {})
            machine.generator(["nvme"], "randread", "4k", 1, {})
        self.assertIn("--pattern write --random-percent 0 --bytes 524288", " ".join(told[1]))
        self.assertIn("--pattern read --random-percent 100 --bytes 4096", " ".join(told[2]))


def measured(iops=1000.0, mean=100.0, p99=500.0, per_core=400.0, mib=4.0, **more):
    return {"iops": iops, "mean_us": mean, "p50_us": mean, "p99_us": p99, "p999_us": 2 * p99, "per_core": per_core, "mib_s": mib, **more}


class Goals(unittest.TestCase):
    def row(self, media, what, figure, ours, ceph):
        case = next(case for case in goals.CASES if case.what == what)
        wanted = (case.of_ceph, case.of_vitastor) if figure == case.figure else goals.PER_CORE[what]
        seen = {("NBD", what): ours, ("Ceph", what): ceph}
        rows = list(goals.lines(media, what, figure, ["NBD", "Ceph"], seen, wanted))
        self.assertEqual(rows[1][6:], ["", "", ""], "Ceph is held against nobody")
        return rows[0]

    def test_a_rate_is_more_times_and_a_latency_less(self):
        rate = self.row("memory", "4k random write, depth 128", "iops", [measured(iops=80_118)], [measured(iops=2_500)])
        self.assertEqual(rate[6:], ["32.0 × (reached, 30)", "2.0 × (reached, 2)", "40,059"])
        latency = self.row("memory", "4k random write, depth 1", "mean_us", [measured(mean=216)], [measured(mean=1080)])
        self.assertEqual(latency[6:], ["5.0 × (missed, 6)", "1.0 × (missed, 1.43)", "216"])

    def test_repeats_are_paired_and_their_spread_is_said(self):
        ours, ceph = [measured(iops=n) for n in (90_000, 60_000, 80_000)], [measured(iops=n) for n in (3_000, 2_000, 2_500)]
        row = self.row("memory", "4k random write, depth 128", "iops", ours, ceph)
        self.assertEqual((row[2], row[6]), ("80,000 (60,000–90,000) IOPS", "32.0 × (30.0–32.0; reached, 30)"))

    def test_on_a_disk_writes_are_held_against_writes_that_are_durable_each(self):
        what = "4k random write, depth 128"
        row = self.row("disk", what, "iops", [measured(iops=33_858)], [measured(iops=2_000)])
        self.assertEqual(row[7:], ["2.0 × (reached, 2)", "16,929, durable each (O_SYNC)"])
        self.assertIn("before any flush", self.row("disk", "8k 80/20, depth 64", "iops", [measured()], [measured()])[8])
        self.assertEqual(self.row("disk", what, "per_core", [measured()], [measured()])[7:], ["not known", ""])
        for case in goals.CASES:
            memory, disk = (vitastor.known(media, case.what, case.figure) for media in ("memory", "disk"))
            self.assertFalse(memory and disk and memory.value == disk.value, f"{case.what}: a disk's figure is not memory's")

    def test_each_goal_in_memory_has_a_figure_of_vitastor_and_each_figure_a_case(self):
        cases = {(case.what, case.figure) for case in goals.CASES} | {(what, "per_core") for what in goals.PER_CORE}
        for media in vitastor.FIGURES:
            self.assertEqual(set(vitastor.FIGURES[media]) - cases, set())
        without = {case.what for case in goals.CASES if case.of_vitastor and not vitastor.known("memory", case.what, case.figure)}
        self.assertEqual(without, {"4M sequential read, depth 1", "4M sequential write, depth 1"})

    def test_of_mixes_cores_are_shown_and_not_judged(self):
        row = self.row("memory", "8k 80/20, depth 64", "per_core", [measured(per_core=44_600)], [measured(per_core=4_460)])
        self.assertEqual(row[6:], ["10.0 ×", "2.0 ×", "22,300"])

    def test_order_is_judged_at_each_depth_by_each_of_ours(self):
        seen = {(name, f"4k {kind} write, depth {depth}"): [measured(iops=iops)]
                for name in ("NBD", "Ceph") for kind, iops in (("random", 1000), ("sequential", 996)) for depth in goals.ORDER_DEPTHS}
        lines = list(goals.orders(["NBD", "Ceph"], seen))
        self.assertEqual(len(lines), 2)
        self.assertTrue(all("missed" in line and "NBD" in line for line in lines), lines)
        seen["NBD", "4k sequential write, depth 128"] = [measured(iops=1000)]
        self.assertIn("1.00 × (reached, 1)", list(goals.orders(["NBD"], seen))[1])

    def test_everything_that_was_measured_is_told(self):
        names = ["libcairn", "NBD", "NVMe/TCP", "Ceph"]
        seen = {(name, case.what): [measured(), measured()] for name in names for case in goals.CASES}
        for media in ("memory", "disk"):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                goals.tell(media, names, seen)
            rows = [line for line in out.getvalue().splitlines() if line.startswith("| ")]
            self.assertEqual(len(rows), 1 + len(names) * (len(goals.CASES) + len(goals.PER_CORE)))
            self.assertEqual({row.count(" | ") for row in rows}, {8})

    def test_the_plan_grows_with_contestants_and_repeats(self):
        self.assertGreater(goals.planned_s(goals.CONTESTANTS), goals.planned_s(["NBD"]) + goals.CEPH_S * machine.REPEATS)

    def test_ceph_takes_turns_at_being_first(self):
        order = []
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(goals, "REPEATS", 2))
            stack.enter_context(mock.patch.object(goals, "ping_pong", lambda: 10))
            stack.enter_context(mock.patch.object(goals, "measure_cairn", lambda media, names, repeat, seen: order.append(tuple(names))))
            stack.enter_context(mock.patch.object(goals, "measure_ceph", lambda media, repeat, seen: order.append("Ceph")))
            stack.enter_context(mock.patch.object(goals, "tell", lambda *_: None))
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            goals.measure("memory")
        ours = ("libcairn", "NBD", "NVMe/TCP")
        self.assertEqual(order, [ours, "Ceph", "Ceph", ours])


class Equal(unittest.TestCase):
    PEAK = vitastor.PEAKS["memory", "randwrite"]

    def said(self, p99, done=28_000, peak=PEAK):
        return equal.judged({"iops": done, "offered": 28_041, "p99_us": p99}, peak)

    def test_what_is_not_known_is_not_judged(self):
        self.assertTrue(self.said(1_000).endswith("at 70 % not known"))
        self.assertTrue(self.said(3_350).endswith("at 70 % not known"))
        self.assertTrue(self.said(3_351).startswith("not decided"))
        self.assertTrue(self.said(4_551).startswith("missed"))
        self.assertIn("not known", self.said(1, peak=vitastor.PEAKS["disk", "randwrite"]))
        self.assertNotIn("reached", "".join(self.said(p99) for p99 in (1, 3_351, 9_000)))

    def test_who_does_not_carry_the_load_has_missed(self):
        self.assertEqual(self.said(1, done=14_020), "missed: it carries 50% of the load")

    def test_what_is_offered_is_a_share_of_the_peak_and_told(self):
        seen = {(what, name): [measured(offered=28_041.3, max_us=9, p99=700)] for what in equal.LOADS for name in ("libcairn", "Ceph")}
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            equal.tell("memory", seen)
        self.assertIn("was not measured", out.getvalue())
        self.assertIn("its p99 6.7 to 9.1 ms", out.getvalue())
        self.assertEqual(len(re.findall("70 % of its own most", out.getvalue())), 2)


class Flat(unittest.TestCase):
    def test_what_has_no_room_or_no_time_is_left_out_and_says_why(self):
        usage = mock.Mock(free=40 << 30)
        with mock.patch.object(flat.shutil, "disk_usage", lambda _: usage):
            self.assertIsNone(flat.why_not("disk", flat.Shape(1, 1, 1), 0))
            self.assertIn("62 GiB, 40 are free", flat.why_not("disk", flat.Shape(1, 1, 16), 0))
            self.assertIn("were over", flat.why_not("disk", flat.Shape(1, 1, 1), flat.SECONDS_MAX + 1))

    def test_fifteen_per_cent_less_is_still_flat(self):
        first = {"per_core": 1000}
        self.assertEqual(flat.against({"per_core": 851}, first, "per_core"), "85% (reached)")
        self.assertEqual(flat.against({"per_core": 840}, first, "per_core"), "84% (missed)")
        self.assertEqual(flat.against(first, first, "per_core"), "")
        self.assertEqual(flat.against(first, None, "per_core"), "")

    def test_the_client_is_no_storage(self):
        one = flat.costs({"iops": 9, "p99_us": 1, "processes_us": 20, "cpu_us": {"node 1": [6, 2], "etcd": [2], "client": [10]}})
        self.assertEqual((one["per_core"], one["per_storage_core"]), (50_000, 100_000))

    def test_a_shape_that_was_left_out_has_no_row(self):
        one = {"iops": 1, "p99_us": 1, "cpu_us": 1, "per_core": 1, "per_storage_core": 1}
        seen = {("NBD", pattern, flat.SHAPES["disk"][0]): [one] for pattern in flat.PATTERNS}
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            flat.tell("disk", ["NBD"], seen)
        self.assertEqual(len([line for line in out.getvalue().splitlines() if line.startswith("| NBD")]), 2)


class Failover(unittest.TestCase):
    def test_what_was_told_is_kept(self):
        def plays(command, timeout):
            with open(command[-1], "w", encoding="utf-8") as file:
                json.dump({"what": "failover", "commands_failed": 0, "failures": [{"failure": "frozen"}]}, file)
            return "some lines\n| failure | rounds |\n"

        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        results = []
        with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()) as told:
            os.mkdir(os.path.join(directory, "out"))
            os.chdir(directory)
            with mock.patch.object(machine, "run", plays), mock.patch.object(machine, "results", results):
                failover.measure()
            os.chdir(here)
        self.assertIn("| failure | rounds |", told.getvalue())
        self.assertNotIn("some lines", told.getvalue())
        [kept] = results
        self.assertEqual((kept["what"], kept["commands_failed"], kept["failures"]), ("failover", 0, [{"failure": "frozen"}]))


class Recovery(unittest.TestCase):
    GIVES = {"read": 3000, "write": 1000, "tcp": 2000, "copy": 500}

    def test_the_rate_at_which_bytes_come_is_without_what_goes_before_and_behind(self):
        mib = machine.MIB
        # Nothing for a second, 100 MiB a second for ten, then nothing until somebody has seen it.
        written = [(0, 5 * mib), (1, 5 * mib), *((1 + n, (5 + 100 * n) * mib) for n in range(1, 11)), (15, 1005 * mib)]
        self.assertAlmostEqual(recovery.coming(written), 100)
        # Between two looks it is taken to have come evenly.
        self.assertAlmostEqual(recovery.coming([(0, 0), (2, 300 * mib), (4, 300 * mib)]), 150)

    def test_what_was_not_seen_has_no_rate(self):
        for written in ([(0, 7)], [(0, 7), (1, 7)]):
            self.assertIsNone(recovery.coming(written))

    def test_the_share_is_of_the_slower_and_told_of_the_whole_way_too(self):
        row = recovery.share_row("x", 400, 800, self.GIVES)
        self.assertEqual(row, ["x", "400", "800", "3,000", "1,000", "2,000", "40% (missed, 70%)", "80% (reached, 70%)", "500", "80%", "160%"])
        unseen = recovery.share_row("x", 400, None, self.GIVES)
        self.assertEqual([unseen[at] for at in (1, 2, 6, 7, 9, 10)], ["400", "", "40% (missed, 70%)", "", "80%", ""])

    def test_a_copy_holds_what_was_copied(self):
        with tempfile.TemporaryDirectory() as folder:
            source, sink = (os.path.join(folder, name) for name in ("from", "to"))
            content = os.urandom(2 * plain_copy.BLOCK)
            for path, held in ((source, content), (sink, bytes(len(content)))):
                with open(path, "wb") as file:
                    file.write(held)
            self.assertGreater(plain_copy.over_tcp(0.2, source, sink), 0)
            with open(sink, "rb") as file:
                self.assertEqual(file.read(), content)
            self.assertGreater(plain_copy.over_tcp(0.05), 0)


if __name__ == "__main__":
    unittest.main()
